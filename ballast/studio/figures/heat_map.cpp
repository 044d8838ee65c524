// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ballast/studio/figures/markup.h"
#include "ballast/studio/figures/palette.h"
#include "ballast/studio/figures/svg.h"

namespace ballast::figures {
namespace {

constexpr double kDoublings = 3;         // at which colours end
constexpr size_t kColumnsWithTips = 32;  // of more, texts for each cell would be most of a page
constexpr double kScaleHeight = 46, kSmall = 11;

double level_of(double lift) { return lift > 0 ? std::log2(lift) / kDoublings : -1; }

struct Grid {
  double left = 0, top = 0, cell_width = 0, cell_height = 0;
};

void draw_cell(SvgDrawing& drawing, const HeatMap& map, const Grid& grid, size_t row,
               size_t column) {
  const double lift = map.lifts[row][column];
  const double x = grid.left + static_cast<double>(column) * grid.cell_width,
               y = grid.top + static_cast<double>(row) * grid.cell_height;
  const bool known = std::isfinite(lift);
  const double gap = grid.cell_width > 8 ? 1 : 0;
  const std::string place = fmt::format(
      R"(x="{}" y="{}" width="{}" height="{}" fill="{}")", px(x), px(y), px(grid.cell_width - gap),
      px(grid.cell_height - 1), known ? diverging_colour(level_of(lift)) : std::string(kNothing));
  if (map.columns.size() > kColumnsWithTips)
    drawing.add(fmt::format("<rect {}/>", place));
  else
    drawing.add(fmt::format(
        R"(<rect class="tip" {}><title>{}</title></rect>)", place,
        markup_text(fmt::format("{}, {}: {}", map.rows[row], map.columns[column],
                                known ? number_text(lift) + " x its share" : "no tokens"))));
  const std::string text = known ? fmt::format("{:.{}f}", lift, lift < 9.95 ? 1 : 0) : "";
  if (kSmall * text_width(text) + 4 > grid.cell_width) return;
  drawing.text(x + grid.cell_width / 2, y + grid.cell_height / 2 + 4, Anchor::kMiddle, text,
               fmt::format(R"(font-size="{}" pointer-events="none" fill="{}")", kSmall,
                           takes_dark_text(level_of(lift)) ? kInk : kInkOnDark));
}

void draw_columns(SvgDrawing& drawing, const HeatMap& map, const Grid& grid, double bottom) {
  double widest = 0;
  for (const std::string& name : map.columns)
    widest = std::max(widest, kSmall * text_width(name) + 6);
  const auto every = static_cast<size_t>(std::max(1.0, std::ceil(widest / grid.cell_width)));
  for (size_t column = 0; column < map.columns.size(); column += every)
    drawing.text(grid.left + (static_cast<double>(column) + 0.5) * grid.cell_width, bottom + 14,
                 Anchor::kMiddle, map.columns[column],
                 fmt::format(R"(font-size="{}" fill="{}")", kSmall, kMuted));
}

// From an eighth to eightfold.
void draw_scale(SvgDrawing& drawing, double left, double top) {
  constexpr double kStep = 26;
  int i = 0;
  for (const char* text : {"1/8", "1/4", "1/2", "1", "2", "4", "8"}) {
    const double x = left + kStep * i;
    drawing.add(fmt::format(
        R"(<rect x="{}" y="{}" width="{}" height="10" fill="{}" stroke="{}" stroke-width="0.5"/>)",
        px(x), px(top), px(kStep), diverging_colour((i - kDoublings) / kDoublings), kGrid));
    drawing.text(x + kStep / 2, top + 22, Anchor::kMiddle, text,
                 fmt::format(R"(font-size="{}" fill="{}")", kSmall, kMuted));
    ++i;
  }
  drawing.text(left + kStep * i + 6, top + 9, Anchor::kStart, "x its share of all tokens",
               fmt::format(R"(font-size="{}" fill="{}")", kSmall, kMuted));
}

}  // namespace

Drawing draw(const HeatMap& map, FigureSize size) {
  SvgDrawing drawing("chart heat", map.title, map.description);
  double names = 0;
  for (const std::string& row : map.rows) names = std::max(names, kFontSize * text_width(row));
  Grid grid;
  grid.left = std::min(names + 10, 0.4 * size.width);
  grid.top = map.heading.empty() ? 2 : 26;
  const auto columns = static_cast<double>(std::max<size_t>(1, map.columns.size()));
  grid.cell_width = std::min(64.0, (size.width - grid.left) / columns);
  grid.cell_height = 24;
  if (!map.heading.empty())
    drawing.text(0, 15, Anchor::kStart, map.heading, R"(font-size="14" font-weight="600")");
  for (size_t row = 0; row < map.rows.size(); ++row) {
    drawing.text(grid.left - 10, grid.top + (static_cast<double>(row) + 0.5) * grid.cell_height + 4,
                 Anchor::kEnd, shortened(map.rows[row], (grid.left - 10) / kFontSize));
    for (size_t column = 0; column < map.lifts[row].size(); ++column)
      draw_cell(drawing, map, grid, row, column);
  }
  const double bottom = grid.top + grid.cell_height * static_cast<double>(map.rows.size());
  draw_columns(drawing, map, grid, bottom);
  drawing.text(grid.left + columns * grid.cell_width, bottom + 32, Anchor::kEnd, map.column_label);
  const bool narrow = size.width < 500;
  draw_scale(drawing, narrow ? 0 : grid.left, bottom + (narrow ? 44 : 24 + 20));
  return drawing.finish({size.width, bottom + 30 + kScaleHeight});
}

}  // namespace ballast::figures
