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

// Parses JSON from a file that may be damaged or hostile. Throws BadJson when the text is not valid
// JSON, when an object has the same key twice, and when it nests deeper than 64 levels.
nlohmann::json parse_strict_json(std::string_view text);

}  // namespace ballast
