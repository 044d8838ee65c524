// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/figures/svg.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/studio/figures/markup.h"
#include "ballast/studio/figures/palette.h"

namespace ballast::figures {
namespace {

constexpr double kSwatch = 28, kGap = 16;  // of a legend: swatch with its distance; after a name

double entry_width(const LegendEntry& entry) {
  return kSwatch + kFontSize * text_width(entry.name) + kGap;
}

// Calls place(entry, x, row) for each; returns the number of rows.
template <typename Place>
int lay_out(const std::vector<LegendEntry>& entries, double width, Place place) {
  double x = 0;
  int row = 0;
  for (const LegendEntry& entry : entries) {
    const double taken = std::min(entry_width(entry), width + kGap);
    if (x > 0 && x + taken > width + kGap) {
      x = 0;
      ++row;
    }
    place(entry, x, row);
    x += taken;
  }
  return entries.empty() ? 0 : row + 1;
}

}  // namespace

std::string px(double value) {
  std::string text = fmt::format("{:.2f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

SvgDrawing::SvgDrawing(std::string kind, std::string title, std::string description)
    : kind_(std::move(kind)), title_(std::move(title)), description_(std::move(description)) {}

void SvgDrawing::line(double x1, double y1, double x2, double y2, std::string_view attributes) {
  body_ += fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}" {}/>)", px(x1), px(y1), px(x2),
                       px(y2), attributes);
}

void SvgDrawing::text(double x, double y, Anchor anchor, std::string_view words,
                      std::string_view attributes) {
  const char* side = anchor == Anchor::kStart    ? ""
                     : anchor == Anchor::kMiddle ? R"( text-anchor="middle")"
                                                 : R"( text-anchor="end")";
  body_ += fmt::format(R"(<text x="{}" y="{}"{}{}{}>{}</text>)", px(x), px(y), side,
                       attributes.empty() ? "" : " ", attributes, markup_text(words));
}

void SvgDrawing::attribute(std::string_view name, std::string_view value) {
  attributes_ += fmt::format(R"( {}="{}")", name, markup_text(value));
}

Drawing SvgDrawing::finish(FigureSize size) const {
  const std::string width = px(size.width), height = px(size.height);
  return {fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" class="{}" role="img" width="{}" )"
                      R"(height="{}" viewBox="0 0 {} {}"{} font-family="system-ui,-apple-system,)"
                      R"('Segoe UI',Roboto,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif" )"
                      R"(font-size="{}" fill="{}"><title>{}</title><desc>{}</desc>)"
                      R"(<rect width="{}" height="{}" fill="{}"/>{}</svg>)",
                      kind_, width, height, width, height, attributes_, kFontSize, kInk,
                      markup_text(title_), markup_text(description_), width, height, kPaper, body_),
          size};
}

double legend_height(const std::vector<LegendEntry>& entries, double width) {
  return kLegendRow * lay_out(entries, width, [](const LegendEntry&, double, int) {});
}

void draw_legend(SvgDrawing& drawing, const std::vector<LegendEntry>& entries, Point corner,
                 double width) {
  lay_out(entries, width, [&](const LegendEntry& entry, double x, int row) {
    const double top = corner.y + row * kLegendRow;
    drawing.add(fmt::format(R"svg(<g transform="translate({} {})">{}</g>)svg", px(corner.x + x),
                            px(top), entry.swatch));
    drawing.text(corner.x + x + kSwatch, top + 10, Anchor::kStart,
                 shortened(entry.name, (width - kSwatch) / kFontSize));
  });
}

Drawing side_by_side(const std::string& title, const std::vector<Drawing>& drawings,
                     size_t columns) {
  constexpr double kBetween = 20;
  SvgDrawing all("panels", title, fmt::format("{} charts side by side", drawings.size()));
  FigureSize size;
  double top = 0, row_height = 0, left = 0;
  for (size_t i = 0; i < drawings.size(); ++i) {
    if (i > 0 && i % columns == 0) {
      top += row_height + kBetween;
      left = row_height = 0;
    }
    all.add(fmt::format(R"svg(<g transform="translate({} {})">{}</g>)svg", px(left), px(top),
                        drawings[i].svg));
    left += drawings[i].size.width + kBetween;
    row_height = std::max(row_height, drawings[i].size.height);
    size.width = std::max(size.width, left - kBetween);
  }
  size.height = top + row_height;
  return all.finish(size);
}

}  // namespace ballast::figures
