// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ballast::record {

// What a record says under a key. Records may be of an older or a newer program: what is missing,
// null or of another type gives the value noted below, and never an error.

double number_in(const nlohmann::json& record, const char* key);     // NaN
int64_t count_in(const nlohmann::json& record, const char* key);     // 0
std::string text_in(const nlohmann::json& record, const char* key);  // empty
// The value, or null.
const nlohmann::json& field_in(const nlohmann::json& record, const char* key);
// The list, or an empty one.
const nlohmann::json& list_in(const nlohmann::json& record, const char* key);
std::vector<double> numbers_in(const nlohmann::json& record, const char* key);
// The numbers of an object by their names; others are left out.
std::map<std::string, double> named_numbers_in(const nlohmann::json& record, const char* key);

}  // namespace ballast::record
