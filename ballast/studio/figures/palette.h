// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ballast::figures {

// Colours that people with any kind of colour vision tell apart (Okabe and Ito), as "#rrggbb", in
// the order in which the lines of a chart take them. Later ones begin again.
std::string_view line_colour(size_t line);
// How a line is dashed, as an SVG stroke-dasharray; empty: drawn through. Colour and dashes
// together repeat after 28 lines.
std::string_view line_dashes(size_t line);

// What the points of a line look like; in the order in which lines take them.
enum class Mark { kCircle, kSquare, kTriangle, kDiamond, kCross };
Mark line_mark(size_t line);

// A colour for how much more (blue) or less (orange) than usual something is: `level` from -1 to 1,
// 0 is white. Values beyond count as -1 or 1.
std::string diverging_colour(double level);
// Whether dark text can be read on diverging_colour(level); white can where it cannot.
bool takes_dark_text(double level);

}  // namespace ballast::figures
