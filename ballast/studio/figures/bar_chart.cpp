// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ballast/studio/figures/markup.h"
#include "ballast/studio/figures/palette.h"
#include "ballast/studio/figures/svg.h"

namespace ballast::figures {
namespace {

constexpr double kBar = 22, kBelow = 44;

double shown(double value) { return std::isfinite(value) && value > 0 ? value : 0; }

double total_of(const Bar& bar) {
  double total = 0;
  for (const double value : bar.values) total += shown(value);
  return total;
}

std::string_view colour_of(const BarChart& chart, size_t part) {
  return chart.parts[part] == "other" ? kOther : line_colour(part);
}

// Parts that some bar has.
std::vector<size_t> used_parts(const BarChart& chart) {
  std::vector<size_t> used;
  for (size_t part = 0; part < chart.parts.size(); ++part) {
    if (std::ranges::any_of(chart.bars, [&](const Bar& bar) {
          return part < bar.values.size() && shown(bar.values[part]) > 0;
        }))
      used.push_back(part);
  }
  return used;
}

struct Place {
  double left = 0, right = 0;
  Range range;

  double x_of(double value) const { return left + range.part(value) * (right - left); }
};

void draw_bar(SvgDrawing& drawing, const BarChart& chart, const Bar& bar, const Place& place,
              double top) {
  double sum = 0;
  const double total = total_of(bar);
  for (size_t part = 0; part < bar.values.size(); ++part) {
    const double value = shown(bar.values[part]);
    if (value == 0) continue;
    const double from = place.x_of(sum), to = place.x_of(sum + value);
    sum += value;
    drawing.add(fmt::format(
        R"(<rect class="tip" x="{}" y="{}" width="{}" height="{}" fill="{}" stroke="{}">)"
        R"(<title>{}</title></rect>)",
        px(from), px(top), px(to - from), px(kBar), colour_of(chart, part), kPaper,
        markup_text(fmt::format("{}, {}: {} ({:.0f} %)", bar.name, chart.parts[part],
                                number_text(value), 100 * value / total))));
    const std::string text = fmt::format("{:.0f} %", 100 * value / total);
    const bool pale = colour_of(chart, part) == kOther || part == 3 || part == 4 || part == 5;
    if (kFontSize * text_width(text) + 6 < to - from)
      drawing.text((from + to) / 2, top + 15, Anchor::kMiddle, text,
                   fmt::format(R"(font-size="11" pointer-events="none" fill="{}")",
                               pale ? kInkOnPale : kInkOnDark));
  }
  drawing.text(place.x_of(sum) + 6, top + 15, Anchor::kStart,
               fmt::format("{:.{}f}", total, total < 10 ? 2 : 1), R"(font-weight="600")");
}

}  // namespace

Drawing draw(const BarChart& chart, FigureSize size) {
  SvgDrawing drawing("chart bars", chart.title, chart.description);
  const bool narrow = size.width < 500;
  double names = 0, longest = 0;
  for (const Bar& bar : chart.bars) {
    names = std::max(names, kFontSize * text_width(bar.name));
    longest = std::max(longest, total_of(bar));
  }
  names = std::min(names, 0.36 * size.width);
  Place place = {narrow ? 0 : names + 10, size.width - 46, {0, longest > 0 ? longest : 1}};
  const double row = narrow ? kBar + 24 : kBar + 12;
  double top = chart.heading.empty() ? 4 : 26;
  if (!chart.heading.empty())
    drawing.text(0, 15, Anchor::kStart, chart.heading, R"(font-size="14" font-weight="600")");

  std::vector<LegendEntry> entries;
  for (const size_t part : used_parts(chart))
    entries.push_back(
        {fmt::format(R"(<rect width="22" height="11" fill="{}"/>)", colour_of(chart, part)),
         chart.parts[part]});
  draw_legend(drawing, entries, {place.left, top}, size.width - place.left);
  top += legend_height(entries, size.width - place.left) + 6;
  const double bottom = top + row * static_cast<double>(chart.bars.size());
  for (const Tick& tick : ticks_of(place.range, narrow ? 4 : 7)) {
    const double x = place.x_of(tick.value);
    drawing.line(x, top, x, bottom, fmt::format(R"(stroke="{}")", kGrid));
    drawing.text(x, bottom + 16, tick.value == 0 && narrow ? Anchor::kStart : Anchor::kMiddle,
                 tick.text, fmt::format(R"(fill="{}")", kMuted));
  }
  drawing.text(place.right, bottom + 34, Anchor::kEnd, chart.label);
  for (const Bar& bar : chart.bars) {
    if (narrow)
      drawing.text(0, top + 14, Anchor::kStart, shortened(bar.name, size.width / kFontSize));
    else
      drawing.text(place.left - 10, top + 21, Anchor::kEnd, shortened(bar.name, names / kFontSize));
    draw_bar(drawing, chart, bar, place, top + (narrow ? 18 : 6));
    top += row;
  }
  return drawing.finish({size.width, bottom + kBelow});
}

}  // namespace ballast::figures
