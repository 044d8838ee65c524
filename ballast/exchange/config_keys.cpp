// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/config_keys.h"

#include "ballast/system/error.h"

namespace ballast::exchange {

using nlohmann::json;

const json& ConfigKeys::value(const char* key) const {
  static const json none;
  const auto found = object_.find(key);
  return found == object_.end() ? none : *found;
}

bool ConfigKeys::has(const char* key) const { return !value(key).is_null(); }

void ConfigKeys::want(const char* key, const char* what) const {
  if (!has(key)) fail("{}: it lacks {}", file_, name(key));
  fail("{}: {} is {}; want {}", file_, name(key), value(key).dump(), what);
}

void ConfigKeys::refuse(const char* key, const std::string& reason) const {
  fail("{}: {} is {}, {}", file_, name(key), value(key).dump(), reason);
}

int64_t ConfigKeys::integer(const char* key, std::optional<int64_t> otherwise) const {
  if (!has(key) && otherwise) return *otherwise;
  const json& found = value(key);
  constexpr uint64_t kMost = uint64_t{1}
                             << 40;  // products of two such sizes fit 64 bits, or nearly
  if (!found.is_number_unsigned() || found.get<uint64_t>() > kMost)
    want(key, "a whole number that is not negative");
  return static_cast<int64_t>(found.get<uint64_t>());
}

double ConfigKeys::number(const char* key, std::optional<double> otherwise) const {
  if (!has(key) && otherwise) return *otherwise;
  if (!value(key).is_number()) want(key, "a number");
  return value(key).get<double>();
}

bool ConfigKeys::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!value(key).is_boolean()) want(key, "true or false");
  return value(key).get<bool>();
}

std::string ConfigKeys::text(const char* key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!value(key).is_string()) want(key, "a text");
  return value(key).get<std::string>();
}

std::vector<int64_t> ConfigKeys::integers(const char* key) const {
  if (!has(key)) return {};
  if (!value(key).is_array()) want(key, "a list");
  std::vector<int64_t> items;
  for (const json& item : value(key)) {
    if (!item.is_number_integer()) want(key, "a list of whole numbers");
    items.push_back(item.get<int64_t>());
  }
  return items;
}

std::vector<std::string> ConfigKeys::texts(const char* key) const {
  if (!has(key)) return {};
  if (!value(key).is_array()) want(key, "a list");
  std::vector<std::string> items;
  for (const json& item : value(key)) {
    if (!item.is_string()) want(key, "a list of texts");
    items.push_back(item.get<std::string>());
  }
  return items;
}

ConfigKeys ConfigKeys::within(const char* key) const {
  if (!value(key).is_object()) want(key, "an object");
  return {file_, value(key), name(key)};
}

}  // namespace ballast::exchange
