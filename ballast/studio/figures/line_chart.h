// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ballast/studio/figures/ticks.h"

namespace ballast::figures {

// The size of a drawing in pixels of a screen, at which its text is 12 high. Legends may make it
// higher.
struct FigureSize {
  double width = 0, height = 0;
};
inline constexpr FigureSize kWideFigure = {760, 400}, kNarrowFigure = {360, 300};

// An SVG element of its own, with viewBox, role, title and desc, and no ids; and its real size.
struct Drawing {
  std::string svg;
  FigureSize size;
};

struct Point {
  double x = 0, y = 0;
};

struct Band {
  double x = 0, low = 0, high = 0;
};

enum class Weight { kMain, kThin };  // thin ones lie behind
enum class Marks { kNone, kPoints };

struct Series {
  std::string name;                   // empty: not in the legend
  std::vector<Point> points = {};     // by rising x; one that has no place on the axes is a gap
  std::vector<Band> band = {};        // around the line, such as the spread over seeds
  size_t style = 0;                   // colour, dashes and marks by studio/figures/palette.h
  std::optional<size_t> dashes = {};  // dashed as this style; none: as its own
  Weight weight = Weight::kMain;
  Marks marks = Marks::kNone;
};

struct Axis {
  std::string label;
  Scale scale = Scale::kLinear;
  std::optional<double> low = {}, high = {};  // what is beyond is cut off
};

// A horizontal line across the chart.
struct Level {
  double y = 0;
  std::string text;
};

struct LineChart {
  std::string title;        // for readers who cannot see it, and for the file
  std::string description;  // of what is to be seen
  std::string heading;      // drawn above; may be empty
  Axis x, y;
  std::vector<Series> series = {};
  std::vector<Level> levels = {};
};

// Names stand at the lines' ends where there is room for them, and below the chart otherwise; a
// line that is alone needs none.
Drawing draw(const LineChart& chart, FigureSize size);

}  // namespace ballast::figures
