// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace ballast {

// Colours that people with any kind of colour vision tell apart (Okabe and Ito), as "#rrggbb", in
// the order in which the lines of a chart take them. Later ones begin again.
std::string_view line_colour(size_t line);

}  // namespace ballast
