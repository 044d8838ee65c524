// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/strict_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace ballast {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;

// Watches the parser: its DOM would silently keep the last of two equal keys.
class StructureCheck {
 public:
  bool operator()(int, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (keys_.size() == kMaxDepth) throw BadJson("its JSON nests too deep");
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        if (!keys_.back().insert(key).second) {
          throw BadJson(fmt::format("its JSON has the key '{}' twice", key));
        }
        break;
      }
      case json::parse_event_t::value:
        break;
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;  // of each object (or array, empty) still open
};

}  // namespace

json parse_strict_json(std::string_view text) {
  StructureCheck check;
  try {
    return json::parse(text.begin(), text.end(), std::ref(check));
  } catch (const json::parse_error& error) {
    throw BadJson(fmt::format("its JSON is damaged at byte {}", error.byte));
  } catch (const json::exception&) {  // a number too large for any type
    throw BadJson("its JSON has a number out of range");
  }
}

}  // namespace ballast
