// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/palette.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace ballast::figures {

std::string_view line_colour(size_t line) {
  // Yellow is left out: it cannot be read on white.
  static constexpr std::array<std::string_view, 7> kColours = {
      "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"};
  return kColours[line % kColours.size()];
}

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
  using Rgb = std::array<double, 3>;
  static constexpr Rgb kMore = {0, 84, 140}, kLess = {196, 94, 0}, kUsual = {255, 255, 255};
  const Rgb& end = level < 0 ? kLess : kMore;
  const double part = std::min(1.0, std::abs(level));
  std::array<int, 3> mixed{};
  for (size_t i = 0; i < mixed.size(); ++i)
    mixed[i] = static_cast<int>(std::lround(kUsual[i] + part * (end[i] - kUsual[i])));
  return fmt::format("#{:02x}{:02x}{:02x}", mixed[0], mixed[1], mixed[2]);
}

bool takes_dark_text(double level) { return level < 0.55 && level > -0.85; }

}  // namespace ballast::figures
