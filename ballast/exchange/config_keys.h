// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ballast::exchange {

// The keys of a config.json, or of an object in it, each read as what it must be. A key that is
// null is not there. UserErrors name the file and the key.
class ConfigKeys {
 public:
  // `within`: the object's own key, for messages; empty: it is the whole file.
  ConfigKeys(std::string file, const nlohmann::json& object, std::string within = "")
      : file_(std::move(file)), object_(object), within_(std::move(within)) {}

  bool has(const char* key) const;
  // Without `otherwise` the key must be there.
  int64_t integer(const char* key, std::optional<int64_t> otherwise = {}) const;
  double number(const char* key, std::optional<double> otherwise = {}) const;
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const std::string& otherwise) const;
  std::vector<int64_t> integers(const char* key) const;   // not there: none
  std::vector<std::string> texts(const char* key) const;  // not there: none
  // An object in it. REQUIRES: has(key).
  ConfigKeys within(const char* key) const;

  // What the key says cannot be represented: "config.json: clip_qkv is 8, but ...".
  [[noreturn]] void refuse(const char* key, const std::string& reason) const;
  const std::string& file() const { return file_; }

 private:
  const nlohmann::json& value(const char* key) const;
  [[noreturn]] void want(const char* key, const char* what) const;
  std::string name(const char* key) const { return within_.empty() ? key : within_ + "." + key; }

  std::string file_;
  const nlohmann::json& object_;
  std::string within_;
};

}  // namespace ballast::exchange
