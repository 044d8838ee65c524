// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/studio/figures/line_chart.h"

namespace ballast::figures {

// How many times its usual share each cell has: 1 is white, more is blue, less is orange, in
// doublings up to eightfold.
struct HeatMap {
  std::string title, description, heading;
  std::string column_label;  // "experts"
  std::vector<std::string> rows, columns;
  std::vector<std::vector<double>> lifts = {};  // [rows][columns]; not finite: nothing is known
};

Drawing draw(const HeatMap& map, FigureSize size);

}  // namespace ballast::figures
