// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace ballast {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;

// Reads the text for its structure alone: the parser that builds values would silently keep the
// last of two equal keys (and its callbacks make it quadratic in the number of keys).
class StructureCheck : public nlohmann::json_sax<json> {
 public:
  explicit StructureCheck(RepeatedKeys repeated) : repeated_(repeated) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& key) override {
    if (repeated_ == RepeatedKeys::kLastCounts || keys_.back().insert(key).second) return true;
    throw BadJson(fmt::format("its JSON has the key '{}' twice", key));
  }
  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    if (dynamic_cast<const json::parse_error*>(&error) == nullptr) {
      throw BadJson("its JSON has a number out of range");
    }
    throw BadJson(fmt::format("its JSON is damaged at byte {}", position));
  }

 private:
  bool enter() {
    if (keys_.size() == kMaxDepth) throw BadJson("its JSON nests too deep");
    keys_.emplace_back();
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }
  RepeatedKeys repeated_;
  std::vector<std::set<std::string>> keys_;  // of each object (or array, empty) still open
};

}  // namespace

json parse_json(std::string_view text, RepeatedKeys repeated) {
  StructureCheck check(repeated);
  json::sax_parse(text.begin(), text.end(), &check);
  return json::parse(text.begin(), text.end());
}

json parse_json_or_discard(std::string_view text) try {
  return parse_json(text);
} catch (const BadJson&) {
  return json(json::value_t::discarded);
}

}  // namespace ballast
