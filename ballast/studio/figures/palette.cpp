// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/palette.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace ballast::figures {
namespace {

struct LinePaint {
  std::string_view light, dark;
};
// Yellow is left out: it cannot be read on white.
constexpr std::array<LinePaint, 7> kLines = {{{"#0072b2", "#4a9ee8"},
                                              {"#d55e00", "#f0803c"},
                                              {"#009e73", "#2fc397"},
                                              {"#cc79a7", "#e39cc4"},
                                              {"#56b4e9", "#93d4f9"},
                                              {"#e69f00", "#f0b43c"},
                                              {"#000000", "#f0f3f6"}}};

using Rgb = std::array<double, 3>;
constexpr int kLevels = 12;  // of a diverging colour, on either side

std::string mixed(const Rgb& usual, const Rgb& end, double part) {
  std::array<int, 3> colour{};
  for (size_t i = 0; i < colour.size(); ++i)
    colour[i] = static_cast<int>(std::lround(usual[i] + part * (end[i] - usual[i])));
  return fmt::format("#{:02x}{:02x}{:02x}", colour[0], colour[1], colour[2]);
}

std::string light_level(double level) {
  static constexpr Rgb kMore = {0, 84, 140}, kLess = {196, 94, 0}, kUsual = {255, 255, 255};
  return mixed(kUsual, level < 0 ? kLess : kMore, std::abs(level));
}

std::string dark_level(double level) {
  // Orange stays darker than blue: it has light text up to its end, see takes_dark_text.
  static constexpr Rgb kMore = {88, 166, 240}, kLess = {200, 104, 24}, kUsual = {28, 33, 39};
  return mixed(kUsual, level < 0 ? kLess : kMore, std::pow(std::abs(level), 0.7));
}

}  // namespace

std::string_view line_colour(size_t line) { return kLines[line % kLines.size()].light; }

std::string_view line_dashes(size_t line) {
  static constexpr std::array<std::string_view, 4> kDashes = {"", "7 3", "2 2.5", "9 3 2 3"};
  return kDashes[line % kDashes.size()];
}

Mark line_mark(size_t line) {
  static constexpr std::array<Mark, 5> kMarks = {Mark::kCircle, Mark::kSquare, Mark::kTriangle,
                                                 Mark::kDiamond, Mark::kCross};
  return kMarks[line % kMarks.size()];
}

std::string diverging_colour(double level) {
  return light_level(std::round(std::clamp(level, -1.0, 1.0) * kLevels) / kLevels);
}

bool takes_dark_text(double level) { return level < 0.55 && level > -0.85; }

std::vector<Shade> dark_shades() {
  constexpr std::string_view kDarkPaper = "#14181d";
  std::vector<Shade> shades;
  const auto add = [&](std::string_view light, std::string_view dark) {
    shades.push_back({std::string(light), std::string(dark)});
  };
  add(kPaper, kDarkPaper);
  add(kInk, "#e4e8ec");
  add(kMuted, "#9da7b3");
  add(kGrid, "#2d343c");
  add(kNothing, "#1d232a");
  add(kOther, "#8b949e");
  // In the dark all grounds that are dark on paper are bright.
  add(kInkOnDark, kDarkPaper);
  add(kInkOnPale, kDarkPaper);
  for (const LinePaint& line : kLines) add(line.light, line.dark);
  for (int i = -kLevels; i <= kLevels; ++i) {
    const double level = static_cast<double>(i) / kLevels;
    add(light_level(level), dark_level(level));
  }
  return shades;
}

}  // namespace ballast::figures
