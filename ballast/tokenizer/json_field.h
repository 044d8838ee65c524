// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/system/error.h"

namespace ballast::tokenizer {

// A part of a JSON file that knows its place in it: whatever is missing or of another kind is a
// UserError that names the file and the key.
class JsonField {
 public:
  using Json = nlohmann::json;

  // REQUIRES: `json` outlives this object and what it gives out.
  JsonField(const Json& json, std::string file, std::string key = "")
      : json_(&json), file_(std::move(file)), key_(std::move(key)) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> message, Args&&... args) const {
    const std::string text = fmt::format(message, std::forward<Args>(args)...);
    if (key_.empty()) fail("{}: {}", file_, text);
    fail("{}: {} {}", file_, key_, text);
  }

  const std::string& file() const { return file_; }
  const std::string& key() const { return key_; }
  const Json& json() const { return *json_; }
  bool is_null() const { return json_->is_null(); }
  // Whether the object has it, and it is not null.
  bool has(const char* name) const;
  JsonField at(const char* name) const;  // of an object
  std::vector<JsonField> list() const;   // the list that this is
  std::vector<JsonField> list(const char* name) const { return at(name).list(); }
  const std::string& text() const;  // the text that this is
  const std::string& text(const char* name) const { return at(name).text(); }
  const std::string& type() const { return text("type"); }
  uint64_t number(const char* name) const;  // whole, from 0
  // `otherwise` where it is missing or null.
  bool flag(const char* name, bool otherwise) const;

 private:
  std::string key_of(std::string_view name) const {
    return key_.empty() ? std::string(name) : fmt::format("{}.{}", key_, name);
  }

  const Json* json_;
  std::string file_, key_;
};

}  // namespace ballast::tokenizer
