// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/json_fields.h"

#include <limits>
#include <nlohmann/json.hpp>

namespace ballast::record {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

const nlohmann::json* find(const nlohmann::json& record, const char* key) {
  if (!record.is_object()) return nullptr;
  const auto place = record.find(key);
  return place == record.end() ? nullptr : &*place;
}

}  // namespace

double number_in(const nlohmann::json& record, const char* key) {
  const nlohmann::json* value = find(record, key);
  return value != nullptr && value->is_number() ? value->get<double>() : kNone;
}

int64_t count_in(const nlohmann::json& record, const char* key) {
  const nlohmann::json* value = find(record, key);
  return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : 0;
}

std::string text_in(const nlohmann::json& record, const char* key) {
  const nlohmann::json* value = find(record, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

const nlohmann::json& field_in(const nlohmann::json& record, const char* key) {
  static const nlohmann::json kNull;
  const nlohmann::json* value = find(record, key);
  return value != nullptr ? *value : kNull;
}

const nlohmann::json& list_in(const nlohmann::json& record, const char* key) {
  static const nlohmann::json kEmpty = nlohmann::json::array();
  const nlohmann::json* value = find(record, key);
  return value != nullptr && value->is_array() ? *value : kEmpty;
}

std::vector<double> numbers_in(const nlohmann::json& record, const char* key) {
  std::vector<double> numbers;
  for (const nlohmann::json& value : list_in(record, key))
    numbers.push_back(value.is_number() ? value.get<double>() : kNone);
  return numbers;
}

std::map<std::string, double> named_numbers_in(const nlohmann::json& record, const char* key) {
  std::map<std::string, double> numbers;
  const nlohmann::json& object = field_in(record, key);
  if (!object.is_object()) return numbers;
  for (const auto& [name, value] : object.items()) {
    if (value.is_number()) numbers[name] = value.get<double>();
  }
  return numbers;
}

}  // namespace ballast::record
