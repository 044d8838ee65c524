// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string_view>

namespace ballast {

// Why a text is not the JSON we accept, in words for the user; the caller adds the file's name.
class BadJson : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class RepeatedKeys {
  kRefused,
  kLastCounts,  // for what other programs write for themselves, such as libtorch's traces
};

// The only way JSON is read, from files that may be damaged or hostile and from other programs.
// Throws BadJson when the text is not valid JSON, when an object has the same key twice, and when
// it nests deeper than 64 levels: what walks over a value, as copying does, takes stack for each.
nlohmann::json parse_json(std::string_view text, RepeatedKeys repeated = RepeatedKeys::kRefused);
// The same, but nlohmann's discarded value in place of BadJson.
nlohmann::json parse_json_or_discard(std::string_view text);

}  // namespace ballast
