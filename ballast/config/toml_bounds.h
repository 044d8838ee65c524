// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace ballast::config {

// Nesting of lists and tables, and dots in one key: several times what any knob takes.
inline constexpr int kMaxTomlDepth = 16;

// Throws UserError naming `origin` and the line where the text goes beyond that: the parser takes
// stack for each level, so a small file could end the program. Anything else is left to the parser.
void check_toml_bounds(std::string_view text, const std::string& origin);

}  // namespace ballast::config
