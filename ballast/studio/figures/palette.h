// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::figures {

// What is neither a line nor a cell: the ground, words and grid, and what stands for nothing.
inline constexpr std::string_view kPaper = "#fff", kInk = "#1f2328", kMuted = "#59636e",
                                  kGrid = "#e4e7eb", kNothing = "#f3f4f6", kOther = "#c9ced6";
// Words on a coloured ground that is dark, or pale.
inline constexpr std::string_view kInkOnDark = "#fefefe", kInkOnPale = "#1e2227";

// Colours that people with any kind of colour vision tell apart (Okabe and Ito), as "#rrggbb", in
// the order in which the lines of a chart take them. Later ones begin again.
std::string_view line_colour(size_t line);
// How a line is dashed, as an SVG stroke-dasharray; empty: drawn through. Colour and dashes
// together repeat after 28 lines.
std::string_view line_dashes(size_t line);
// Lines that are dashed so.
inline constexpr size_t kThrough = 0, kDashed = 1, kDotted = 2, kDashDotted = 3;

// What the points of a line look like; in the order in which lines take them.
enum class Mark { kCircle, kSquare, kTriangle, kDiamond, kCross };
Mark line_mark(size_t line);

// A colour for how much more (blue) or less (orange) than usual something is: `level` from -1 to 1
// in twelfths, 0 is white. Values beyond count as -1 or 1.
std::string diverging_colour(double level);
// Whether dark text can be read on diverging_colour(level); white can where it cannot.
bool takes_dark_text(double level);

// Drawings have the colours above as attributes, for light paper. A page in the dark shows another
// one in place of each.
struct Shade {
  std::string light, dark;
};
std::vector<Shade> dark_shades();

}  // namespace ballast::figures
