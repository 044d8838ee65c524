// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/json_field.h"

namespace ballast::tokenizer {

bool JsonField::has(const char* name) const {
  if (!json_->is_object()) refuse("is no object");
  const auto found = json_->find(name);
  return found != json_->end() && !found->is_null();
}

JsonField JsonField::at(const char* name) const {
  if (!json_->is_object()) refuse("is no object");
  const auto found = json_->find(name);
  if (found == json_->end()) fail("{}: {} is missing", file_, key_of(name));
  return {*found, file_, key_of(name)};
}

std::vector<JsonField> JsonField::list() const {
  if (!json_->is_array()) refuse("is no list");
  std::vector<JsonField> items;
  for (size_t i = 0; i < json_->size(); ++i) {
    items.emplace_back((*json_)[i], file_, fmt::format("{}[{}]", key_, i));
  }
  return items;
}

const std::string& JsonField::text() const {
  if (!json_->is_string()) refuse("is no text");
  return json_->get_ref<const std::string&>();
}

uint64_t JsonField::number(const char* name) const {
  const JsonField field = at(name);
  if (!field.json().is_number_unsigned()) field.refuse("is no number from 0");
  return field.json().get<uint64_t>();
}

bool JsonField::flag(const char* name, bool otherwise) const {
  if (!has(name)) return otherwise;
  const JsonField field = at(name);
  if (!field.json().is_boolean()) field.refuse("is neither true nor false");
  return field.json().get<bool>();
}

}  // namespace ballast::tokenizer
