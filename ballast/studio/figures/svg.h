// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ballast/studio/figures/line_chart.h"

namespace ballast::figures {

inline constexpr double kFontSize = 12, kLegendRow = 18;

// A coordinate: at most two digits after the point, and no more than it needs.
std::string px(double value);

enum class Anchor { kStart, kMiddle, kEnd };

// An SVG drawing in the making; elements lie on top of those before.
class SvgDrawing {
 public:
  // `kind` becomes its class, which the page's script goes by.
  SvgDrawing(std::string kind, std::string title, std::string description);

  void add(std::string_view element) { body_ += element; }
  void line(double x1, double y1, double x2, double y2, std::string_view attributes);
  // `attributes`: further ones, such as a fill; the text is escaped.
  void text(double x, double y, Anchor anchor, std::string_view words,
            std::string_view attributes = {});
  void attribute(std::string_view name, std::string_view value);  // of the svg element

  Drawing finish(FigureSize size) const;

 private:
  std::string kind_, title_, description_, attributes_, body_;
};

// Entries of a legend in rows that are `width` wide; longer names are shortened. Each swatch is an
// SVG fragment 22 wide and 12 high.
struct LegendEntry {
  std::string swatch, name;
};
double legend_height(const std::vector<LegendEntry>& entries, double width);
void draw_legend(SvgDrawing& drawing, const std::vector<LegendEntry>& entries, Point corner,
                 double width);

// Several drawings in rows of `columns`, as one.
Drawing side_by_side(const std::string& title, const std::vector<Drawing>& drawings,
                     size_t columns);

}  // namespace ballast::figures
