// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/studio/figures/markup.h"
#include "ballast/studio/figures/palette.h"
#include "ballast/studio/figures/svg.h"

namespace ballast::figures {
namespace {

constexpr double kBottom = 44, kHeading = 24, kAxisLabel = 26, kRightMost = 0.42;

// Where the lines are drawn.
struct Plot {
  double left = 0, top = 0, right = 0, bottom = 0;
  Range x, y;

  double x_of(double value) const { return left + x.part(value) * (right - left); }
  double y_of(double value) const { return bottom - y.part(value) * (bottom - top); }
  bool has_place(const Point& point) const {
    return std::isfinite(x.part(point.x)) && std::isfinite(y.part(point.y));
  }
};

Range axis_range(const Axis& axis, const std::vector<double>& values) {
  Range range = range_of(values, axis.scale);
  if (axis.low) range.low = *axis.low;
  if (axis.high) range.high = *axis.high;
  if (!(range.high > range.low)) range.high = range.low + 1;
  return range;
}

std::pair<Range, Range> ranges_of(const LineChart& chart) {
  std::vector<double> xs, ys;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
    for (const Band& band : series.band) {
      ys.push_back(band.low);
      ys.push_back(band.high);
    }
  }
  for (const Level& level : chart.levels) ys.push_back(level.y);
  Range x = axis_range(chart.x, xs);
  // The lines use the whole width: what is measured has no round end.
  if (!chart.x.high && !xs.empty()) {
    const double last = *std::ranges::max_element(xs);
    if (std::isfinite(last) && last > x.low) x.high = last;
  }
  return {x, axis_range(chart.y, ys)};
}

std::string stroke(const Series& series) {
  const bool thin = series.weight == Weight::kThin;
  const std::string_view dashes = line_dashes(series.dashes.value_or(series.style));
  return fmt::format(R"(stroke="{}" stroke-width="{}"{})", line_colour(series.style),
                     thin ? "1.5" : "2.25",
                     dashes.empty() ? "" : fmt::format(R"( stroke-dasharray="{}")", dashes));
}

std::string mark_at(const Series& series, double x, double y) {
  const std::string_view colour = line_colour(series.style);
  const std::string paint =
      fmt::format(R"(fill="{}" stroke="{}" stroke-width="1.6")", kPaper, colour);
  switch (line_mark(series.style)) {
    case Mark::kCircle:
      return fmt::format(R"(<circle cx="{}" cy="{}" r="3" {}/>)", px(x), px(y), paint);
    case Mark::kSquare:
      return fmt::format(R"(<rect x="{}" y="{}" width="5.4" height="5.4" {}/>)", px(x - 2.7),
                         px(y - 2.7), paint);
    case Mark::kTriangle:
      return fmt::format(R"(<path d="M{} {}l3.5 6h-7z" {}/>)", px(x), px(y - 3.8), paint);
    case Mark::kDiamond:
      return fmt::format(R"(<path d="M{} {}l3.8 3.8l-3.8 3.8l-3.8 -3.8z" {}/>)", px(x), px(y - 3.8),
                         paint);
    case Mark::kCross:
      break;
  }
  return fmt::format(R"(<path d="M{} {}l5.6 5.6m0 -5.6l-5.6 5.6" {}/>)", px(x - 2.8), px(y - 2.8),
                     paint);
}

std::string swatch_of(const Series& series) {
  std::string swatch = fmt::format(R"(<path d="M0 6H22" fill="none" {}/>)", stroke(series));
  if (series.marks == Marks::kPoints) swatch += mark_at(series, 11, 6);
  return swatch;
}

std::vector<const Series*> named_series(const LineChart& chart) {
  std::vector<const Series*> named;
  for (const Series& series : chart.series) {
    if (!series.name.empty()) named.push_back(&series);
  }
  return named;
}

// The height at which a line ends, for its name; NaN without a point.
double end_of(const Series& series, const Plot& plot) {
  for (auto point = series.points.rbegin(); point != series.points.rend(); ++point) {
    if (plot.has_place(*point)) return std::clamp(plot.y_of(point->y), plot.top, plot.bottom);
  }
  return plot.bottom;
}

// Moves names apart so that none covers another, as little as it takes.
std::vector<double> spread_out(const std::vector<double>& wanted, double top, double bottom) {
  std::vector<double> places = wanted;
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = std::max(places[i], i == 0 ? top : places[i - 1] + kLegendRow - 2);
  for (size_t i = places.size(); i-- > 0;)
    places[i] =
        std::min(places[i], i + 1 == places.size() ? bottom : places[i + 1] - kLegendRow + 2);
  return places;
}

void draw_names_at_ends(SvgDrawing& drawing, const LineChart& chart, const Plot& plot) {
  std::vector<const Series*> named = named_series(chart);
  std::ranges::stable_sort(named, {}, [&](const Series* series) { return end_of(*series, plot); });
  std::vector<double> wanted;
  for (const Series* series : named) wanted.push_back(end_of(*series, plot));
  const std::vector<double> places = spread_out(wanted, plot.top + 4, plot.bottom - 4);
  for (size_t i = 0; i < named.size(); ++i) {
    drawing.add(fmt::format(R"svg(<g transform="translate({} {})">{}</g>)svg", px(plot.right + 12),
                            px(places[i] - 6), swatch_of(*named[i])));
    drawing.text(plot.right + 40, places[i] + 4, Anchor::kStart, named[i]->name);
  }
}

void draw_axes(SvgDrawing& drawing, const LineChart& chart, const Plot& plot) {
  const bool narrow = plot.right - plot.left < 340;
  for (const Tick& tick : ticks_of(plot.y, narrow ? 4 : 6)) {
    const double y = plot.y_of(tick.value);
    drawing.line(plot.left, y, plot.right, y, fmt::format(R"(stroke="{}")", kGrid));
    if (!tick.text.empty())
      drawing.text(plot.left - 8, y + 4, Anchor::kEnd, tick.text,
                   fmt::format(R"(fill="{}")", kMuted));
  }
  for (const Tick& tick : ticks_of(plot.x, narrow ? 4 : 8)) {
    const double x = plot.x_of(tick.value);
    drawing.line(x, plot.bottom, x, plot.bottom + 5, fmt::format(R"(stroke="{}")", kMuted));
    if (!tick.text.empty())
      drawing.text(x, plot.bottom + 19, Anchor::kMiddle, tick.text,
                   fmt::format(R"(fill="{}")", kMuted));
  }
  drawing.line(plot.left, plot.bottom, plot.right, plot.bottom,
               fmt::format(R"(stroke="{}")", kMuted));
  drawing.text(plot.right, plot.bottom + 38, Anchor::kEnd, chart.x.label);
  drawing.text(0, plot.top - 14, Anchor::kStart, chart.y.label);
}

void draw_levels(SvgDrawing& drawing, const LineChart& chart, const Plot& plot) {
  for (const Level& level : chart.levels) {
    const double y = plot.y_of(level.y);
    if (!(y >= plot.top && y <= plot.bottom)) continue;
    drawing.line(plot.left, y, plot.right, y,
                 fmt::format(R"(stroke="{}" stroke-dasharray="1 3")", kInk));
    drawing.text(plot.left + 6, y - 5, Anchor::kStart, level.text,
                 fmt::format(R"(fill="{}")", kMuted));
  }
}

// The runs of points between gaps, as points attributes.
std::vector<std::string> runs_of(const std::vector<Point>& points, const Plot& plot) {
  std::vector<std::string> runs(1);
  for (const Point& point : points) {
    if (!plot.has_place(point)) {
      if (!runs.back().empty()) runs.emplace_back();
      continue;
    }
    // Far beyond the edge a line is cut off anyway.
    const double y = std::clamp(plot.y_of(point.y), plot.top - 1e4, plot.bottom + 1e4);
    runs.back() +=
        fmt::format("{}{},{}", runs.back().empty() ? "" : " ", px(plot.x_of(point.x)), px(y));
  }
  if (runs.back().empty()) runs.pop_back();
  return runs;
}

std::string band_of(const Series& series, const Plot& plot) {
  std::vector<Point> edge;
  for (const Band& band : series.band) edge.push_back({band.x, band.high});
  for (auto band = series.band.rbegin(); band != series.band.rend(); ++band)
    edge.push_back({band->x, band->low});
  std::string area;
  for (const std::string& run : runs_of(edge, plot))
    area += fmt::format(R"(<polygon points="{}" fill="{}" fill-opacity="0.14"/>)", run,
                        line_colour(series.style));
  return area;
}

std::string line_of(const Series& series, const Plot& plot) {
  std::string line = fmt::format(R"(<g class="series" data-name="{}">)", markup_text(series.name));
  for (const std::string& run : runs_of(series.points, plot))
    line += fmt::format(R"(<polyline points="{}" fill="none" stroke-linejoin="round" {}/>)", run,
                        stroke(series));
  if (series.marks == Marks::kPoints) {
    for (const Point& point : series.points) {
      if (plot.has_place(point)) line += mark_at(series, plot.x_of(point.x), plot.y_of(point.y));
    }
  }
  return line + "</g>";
}

void draw_lines(SvgDrawing& drawing, const LineChart& chart, const Plot& plot) {
  // An svg element within cuts off what is beyond its edges, and needs no id for it.
  constexpr double kRoom = 5;
  drawing.add(
      fmt::format(R"(<svg x="{0}" y="{1}" width="{2}" height="{3}" viewBox="{0} {1} {2} {3}">)",
                  px(plot.left - kRoom), px(plot.top - kRoom),
                  px(plot.right - plot.left + 2 * kRoom), px(plot.bottom - plot.top + 2 * kRoom)));
  for (const Weight weight : {Weight::kThin, Weight::kMain}) {
    for (const Series& series : chart.series) {
      if (series.weight == weight) drawing.add(band_of(series, plot) + line_of(series, plot));
    }
  }
  drawing.add("</svg>");
}

double widest_tick(const Range& range, int wanted) {
  double width = 0;
  for (const Tick& tick : ticks_of(range, wanted))
    width = std::max(width, kFontSize * text_width(tick.text));
  return width;
}

// For the script that shows values: edges in pixels, and in the axes' units.
void tell_scales(SvgDrawing& drawing, const LineChart& chart, const Plot& plot) {
  const auto side = [](double from, double to, const Range& range) {
    return fmt::format("{} {} {:.9g} {:.9g} {}", px(from), px(to), range.low, range.high,
                       range.scale == Scale::kLog ? "log" : "linear");
  };
  drawing.attribute("data-x", side(plot.left, plot.right, plot.x));
  drawing.attribute("data-y", side(plot.bottom, plot.top, plot.y));
  drawing.attribute("data-labels", chart.x.label + "|" + chart.y.label);
}

}  // namespace

Drawing draw(const LineChart& chart, FigureSize size) {
  SvgDrawing drawing("chart lines", chart.title, chart.description);
  Plot plot;
  std::tie(plot.x, plot.y) = ranges_of(chart);
  double name_width = 0;
  for (const Series* series : named_series(chart))
    name_width = std::max(name_width, 48 + kFontSize * text_width(series->name));
  const double heading = chart.heading.empty() ? 0 : kHeading;
  plot.top = heading + kAxisLabel + 4;
  plot.bottom = size.height - kBottom;
  plot.left = 12 + widest_tick(plot.y, size.width < 500 ? 4 : 6);
  const auto names = static_cast<double>(named_series(chart).size());
  const bool names_at_ends = name_width < kRightMost * size.width && size.width >= 500 &&
                             names > 1 && names * (kLegendRow - 2) <= plot.bottom - plot.top;
  plot.right = size.width - (names_at_ends ? name_width : 14);

  if (heading > 0)
    drawing.text(0, 15, Anchor::kStart, chart.heading, R"(font-size="14" font-weight="600")");
  draw_axes(drawing, chart, plot);
  draw_levels(drawing, chart, plot);
  draw_lines(drawing, chart, plot);
  tell_scales(drawing, chart, plot);
  if (names_at_ends) {
    draw_names_at_ends(drawing, chart, plot);
    return drawing.finish(size);
  }
  std::vector<LegendEntry> entries;
  if (names > 1) {
    for (const Series* series : named_series(chart))
      entries.push_back({swatch_of(*series), series->name});
  }
  draw_legend(drawing, entries, {plot.left, size.height + 2}, size.width - plot.left);
  const double legend = legend_height(entries, size.width - plot.left);
  return drawing.finish({size.width, size.height + (legend > 0 ? legend + 4 : 0)});
}

}  // namespace ballast::figures
