// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ballast {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;

// Builds the value while it is read. nlohmann's own builder would silently keep the last of two
// equal keys, and its callbacks make it quadratic in the number of keys.
class Builder : public nlohmann::json_sax<json> {
 public:
  explicit Builder(RepeatedKeys repeated) : repeated_(repeated) {}

  json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  // A copy: the parser's own may have room for twice as much.
  bool string(string_t& value) override { return add(value); }
  bool binary(binary_t&) override { return false; }  // of other formats than text
  bool start_object(size_t) override { return enter(json::object()); }
  bool start_array(size_t) override { return enter(json::array()); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& key) override {
    const auto [place, is_new] = open_.back()->get_ref<json::object_t&>().try_emplace(key);
    if (!is_new && repeated_ == RepeatedKeys::kRefused)
      throw BadJson(fmt::format("its JSON has the key '{}' twice", key));
    member_ = &place->second;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    if (dynamic_cast<const json::parse_error*>(&error) == nullptr) {
      throw BadJson("its JSON has a number out of range");
    }
    throw BadJson(fmt::format("its JSON is damaged at byte {}", position));
  }

 private:
  // Where the next value belongs.
  json& place() {
    if (open_.empty()) return root_;
    if (open_.back()->is_object()) return *member_;
    return open_.back()->get_ref<json::array_t&>().emplace_back();
  }
  bool add(json value) {
    place() = std::move(value);
    return true;
  }
  bool enter(json value) {
    if (open_.size() == kMaxDepth) throw BadJson("its JSON nests too deep");
    json& added = place();
    added = std::move(value);
    open_.push_back(&added);
    return true;
  }
  bool leave() {
    open_.pop_back();
    return true;
  }

  RepeatedKeys repeated_;
  json root_;
  std::vector<json*> open_;  // a container grows only while it is the last one open: none moves
  json* member_ = nullptr;   // what the last key names
};

}  // namespace

json parse_json(std::string_view text, RepeatedKeys repeated) {
  Builder builder(repeated);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

json parse_json_or_discard(std::string_view text) try {
  return parse_json(text);
} catch (const BadJson&) {
  return json(json::value_t::discarded);
}

}  // namespace ballast
