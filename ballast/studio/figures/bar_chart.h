// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/studio/figures/line_chart.h"

namespace ballast::figures {

struct Bar {
  std::string name;
  std::vector<double> values;  // of each part; not finite or negative: none
};

// Horizontal bars, each made of parts one after another.
struct BarChart {
  std::string title, description, heading;
  std::string label;               // of the axis
  std::vector<std::string> parts;  // the last is drawn in grey if it is "other"
  std::vector<Bar> bars;
};

// The height follows from the number of bars.
Drawing draw(const BarChart& chart, FigureSize size);

}  // namespace ballast::figures
