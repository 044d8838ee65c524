// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace ballast::inference {

// White space as Python's str has it, in UTF-8.

// Bytes of the one at the start of `text`; 0: there is none.
size_t space_length(std::string_view text);
std::string_view without_space_at_end(std::string_view text);
std::string_view without_space_around(std::string_view text);

}  // namespace ballast::inference
