// SPDX-License-Identifier: Apache-2.0
#include "ballast/figures/palette.h"

#include <array>

namespace ballast {

std::string_view line_colour(size_t line) {
  // Yellow is left out: it cannot be read on white.
  static constexpr std::array<std::string_view, 7> kColours = {
      "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"};
  return kColours[line % kColours.size()];
}

}  // namespace ballast
