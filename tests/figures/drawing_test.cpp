// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <set>

#include "ballast/studio/figures/bar_chart.h"
#include "ballast/studio/figures/heat_map.h"
#include "ballast/studio/figures/line_chart.h"
#include "ballast/studio/figures/markup.h"
#include "ballast/studio/figures/palette.h"
#include "ballast/studio/figures/svg.h"

namespace ballast::figures {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(),
                 kInfinity = std::numeric_limits<double>::infinity();

size_t count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return static_cast<size_t>(
      std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {}));
}

LineChart chart_of(std::vector<Series> series) {
  return {.title = "a chart",
          .description = "of lines",
          .heading = "",
          .x = {.label = "time"},
          .y = {.label = "perplexity"},
          .series = std::move(series)};
}

// All coordinates are numbers, and tags are closed in the order in which they were opened.
void expect_sound(const std::string& svg) {
  EXPECT_EQ(count(svg, "nan|inf"), 0) << svg;
  std::vector<std::string> open;
  const std::regex tag(R"(<(/?)([a-z]+)[^<>]*?(/?)>)");
  for (auto match = std::sregex_iterator(svg.begin(), svg.end(), tag);
       match != std::sregex_iterator(); ++match) {
    if ((*match)[1].length() > 0) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(open.back(), (*match)[2].str());
      open.pop_back();
    } else if ((*match)[3].length() == 0) {
      open.push_back((*match)[2].str());
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(Markup, EscapesWhatHasAMeaning) {
  EXPECT_EQ(markup_text("a < b & \"c\" > 'd'"), "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39;");
}

TEST(Markup, ReplacesWhatXmlDoesNotKnow) {
  EXPECT_EQ(markup_text(std::string_view("a\0b\x1b\xff", 5)),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(markup_text("line\n\ttab \xc3\xa9"), "line\n\ttab \xc3\xa9");
}

TEST(LineChart, SaysWhatItIsToThoseWhoCannotSeeIt) {
  const Drawing drawing =
      draw(chart_of({{.name = "dense", .points = {{0, 3}, {1, 2}}}}), kWideFigure);
  EXPECT_THAT(drawing.svg, HasSubstr(R"(role="img")"));
  EXPECT_THAT(drawing.svg, HasSubstr(R"(viewBox="0 0 760 400")"));
  EXPECT_THAT(drawing.svg, HasSubstr("<title>a chart</title><desc>of lines</desc>"));
  EXPECT_THAT(drawing.svg, Not(HasSubstr(" id=")));
  expect_sound(drawing.svg);
}

TEST(LineChart, ANumberThatIsNoneIsAGap) {
  const Drawing drawing =
      draw(chart_of({{.name = "a", .points = {{0, 1}, {1, 2}, {2, kNaN}, {3, 2}, {4, 1}}}}),
           kWideFigure);
  EXPECT_EQ(count(drawing.svg, "<polyline"), 2);
  expect_sound(drawing.svg);
}

TEST(LineChart, OnALogarithmicAxisZeroIsAGap) {
  LineChart chart = chart_of({{.name = "a", .points = {{0, 8}, {1, 0}, {2, 2}, {3, 2}}}});
  chart.y.scale = Scale::kLog;
  const Drawing drawing = draw(chart, kWideFigure);
  EXPECT_EQ(count(drawing.svg, "<polyline"), 2);
  expect_sound(drawing.svg);
}

TEST(LineChart, WithoutPointsIsDrawnAllTheSame) {
  for (const FigureSize size : {kWideFigure, kNarrowFigure}) {
    expect_sound(draw(chart_of({}), size).svg);
    expect_sound(draw(chart_of({{.name = "none"}}), size).svg);
    expect_sound(draw(chart_of({{.name = "a", .points = {{kNaN, kNaN}}}}), size).svg);
    expect_sound(draw(chart_of({{.name = "a", .points = {{0, kInfinity}, {1, 5}}}}), size).svg);
    expect_sound(draw(chart_of({{.name = "a", .points = {{3, 7}}}}), size).svg);
  }
}

TEST(LineChart, NamesAreEscaped) {
  const Drawing drawing =
      draw(chart_of({{.name = "<b> & \"c\"", .points = {{0, 1}, {1, 2}}}}), kWideFigure);
  EXPECT_THAT(drawing.svg, HasSubstr("&lt;b&gt; &amp; &quot;c&quot;"));
  EXPECT_THAT(drawing.svg, Not(HasSubstr("<b>")));
  expect_sound(drawing.svg);
}

TEST(LineChart, NamesStandAtLineEndsWhereThereIsRoomAndBelowElsewhere) {
  const LineChart chart = chart_of({{.name = "dense", .points = {{0, 3}, {1, 2}}, .style = 0},
                                    {.name = "BASE", .points = {{0, 3}, {1, 1}}, .style = 1}});
  EXPECT_EQ(draw(chart, kWideFigure).size.height, kWideFigure.height);
  EXPECT_GT(draw(chart, kNarrowFigure).size.height, kNarrowFigure.height);
  EXPECT_THAT(draw(chart, kNarrowFigure).svg, HasSubstr(">BASE</text>"));
}

TEST(LineChart, NamesOfLinesThatEndAtOnePlaceDoNotCoverEachOther) {
  std::vector<Series> series;
  for (size_t i = 0; i < 6; ++i)
    series.push_back({.name = std::string("system") + static_cast<char>('A' + i),
                      .points = {{0, 3}, {1, 1}},
                      .style = i});
  const std::string svg = draw(chart_of(series), kWideFigure).svg;
  const std::regex name(R"re(y="([\d.]+)">system[A-F]</text>)re");
  std::vector<double> heights;
  for (auto match = std::sregex_iterator(svg.begin(), svg.end(), name);
       match != std::sregex_iterator(); ++match)
    heights.push_back(std::stod((*match)[1]));
  ASSERT_EQ(heights.size(), 6);
  for (size_t i = 1; i < heights.size(); ++i) EXPECT_GE(heights[i] - heights[i - 1], 15);
}

TEST(LineChart, DashesMayDifferFromThoseOfTheColour) {
  const std::string svg =
      draw(chart_of({{.name = "a", .points = {{0, 1}, {1, 2}}, .style = 0, .dashes = 1}}),
           kWideFigure)
          .svg;
  EXPECT_THAT(svg, HasSubstr(std::string(line_colour(0))));
  EXPECT_THAT(svg, HasSubstr(std::string(line_dashes(1))));
}

TEST(Palette, LinesDifferWithoutColour) {
  for (size_t a = 0; a < 12; ++a) {
    for (size_t b = a + 1; b < 12; ++b)
      EXPECT_TRUE(line_dashes(a) != line_dashes(b) || line_mark(a) != line_mark(b))
          << a << " " << b;
  }
}

TEST(Palette, TellsMoreFromLess) {
  EXPECT_EQ(diverging_colour(0), "#ffffff");
  EXPECT_EQ(diverging_colour(1), diverging_colour(7));
  EXPECT_NE(diverging_colour(-1), diverging_colour(1));
}

// A page in the dark replaces colours by their attributes: one that it does not know would stay.
TEST(Palette, HasAnotherColourInTheDarkForEachOfADrawing) {
  std::set<std::string> known;
  for (const Shade& shade : dark_shades()) {
    EXPECT_TRUE(known.insert(shade.light).second) << shade.light << " twice";
    EXPECT_NE(shade.light, shade.dark);
  }
  std::vector<Series> series;
  BarChart bars;
  HeatMap map;
  map.rows = {"a"};
  map.lifts = {{}};
  bars.bars = {{"a", {}}};
  for (size_t i = 0; i < 8; ++i) {
    series.push_back(
        {.name = "line", .points = {{0, 1}, {1, 2}}, .style = i, .marks = Marks::kPoints});
    bars.parts.emplace_back(i == 7 ? "other" : "part");
    bars.bars[0].values.push_back(1);
  }
  for (double lift = 1.0 / 16; lift < 16; lift *= 1.07) {
    map.columns.emplace_back("0");
    map.lifts[0].push_back(lift);
  }
  map.columns.emplace_back("none");
  map.lifts[0].push_back(kNaN);
  LineChart lines = chart_of(series);
  lines.levels = {{1.5, "level"}};
  const std::string all =
      draw(lines, kWideFigure).svg + draw(bars, kWideFigure).svg + draw(map, {9000, 400}).svg;
  const std::regex paint(R"re((?:fill|stroke)="(#[0-9a-fA-F]+)")re");
  for (auto match = std::sregex_iterator(all.begin(), all.end(), paint);
       match != std::sregex_iterator(); ++match)
    EXPECT_TRUE(known.contains((*match)[1])) << (*match)[1];
}

TEST(BarChart, PartsThatAreNoNumbersAreLeftOut) {
  const BarChart chart = {.title = "time",
                          .description = "by part",
                          .heading = "",
                          .label = "us",
                          .parts = {"attention", "experts", "other"},
                          .bars = {{"a", {1, kNaN, 2}}, {"b <c>", {3, -1, 0}}}};
  for (const FigureSize size : {kWideFigure, kNarrowFigure}) {
    const std::string svg = draw(chart, size).svg;
    EXPECT_EQ(count(svg, R"(class="tip")"), 3);
    EXPECT_THAT(svg, Not(HasSubstr(">experts<")));
    expect_sound(svg);
  }
}

TEST(BarChart, WithoutBarsIsDrawnAllTheSame) {
  expect_sound(draw(BarChart{}, kWideFigure).svg);
  BarChart empty_bar;
  empty_bar.parts = {"a"};
  empty_bar.bars = {{"none", {}}};
  expect_sound(draw(empty_bar, kNarrowFigure).svg);
}

TEST(HeatMap, HasACellForEachPairAndSaysWhereNothingIsKnown) {
  const HeatMap map = {.title = "domains",
                       .description = "",
                       .heading = "",
                       .column_label = "experts",
                       .rows = {"law", "news"},
                       .columns = {"0", "1", "2"},
                       .lifts = {{0, 1, 9}, {kNaN, 2, 0.5}}};
  for (const FigureSize size : {kWideFigure, kNarrowFigure}) {
    const std::string svg = draw(map, size).svg;
    EXPECT_EQ(count(svg, R"(class="tip")"), 6);
    EXPECT_THAT(svg, HasSubstr("news, 0: no tokens"));
    expect_sound(svg);
  }
}

TEST(HeatMap, OfManyColumnsHasNoTextForEachCell) {
  HeatMap map;
  map.rows = {"law"};
  map.columns.assign(33, "1");
  map.lifts = {std::vector<double>(33, 1.0)};
  EXPECT_EQ(count(draw(map, kWideFigure).svg, R"(class="tip")"), 0);
  map.columns.pop_back();
  map.lifts[0].pop_back();
  EXPECT_EQ(count(draw(map, kWideFigure).svg, R"(class="tip")"), 32);
}

TEST(LongNames, AreCutToTheRoomTheyHave) {
  EXPECT_EQ(shortened("dense", 10), "dense");
  EXPECT_EQ(shortened("eeeeeeeeee", 0.61 * 4.5), "eee\u2026");
  EXPECT_EQ(shortened("\u00e9\u00e9\u00e9\u00e9\u00e9", 0.61 * 3.5), "\u00e9\u00e9\u2026");
  const std::string name(200, 'e');
  const std::regex text(R"re(>(e+[^<e]+)</text>)re");
  const auto widest = [&](const std::string& svg) {
    double width = 0;
    for (auto match = std::sregex_iterator(svg.begin(), svg.end(), text);
         match != std::sregex_iterator(); ++match)
      width = std::max(width, kFontSize * text_width((*match)[1].str()));
    return width;
  };
  const BarChart bars = {.title = "",
                         .description = "",
                         .heading = "",
                         .label = "us",
                         .parts = {"a"},
                         .bars = {{name, {1}}}};
  const LineChart lines = chart_of(
      {{.name = name, .points = {{0, 1}, {1, 2}}}, {.name = "b", .points = {{0, 1}, {1, 2}}}});
  for (const FigureSize size : {kWideFigure, kNarrowFigure}) {
    for (const std::string& svg : {draw(bars, size).svg, draw(lines, size).svg}) {
      EXPECT_GT(widest(svg), 100);
      EXPECT_LE(widest(svg), size.width);
    }
  }
}

TEST(LongNames, ThatHaveRoomAreWhole) {
  HeatMap map;
  map.rows = {"law", "speculative_fiction"};
  map.columns = {"0"};
  map.lifts = {{1}, {1}};
  EXPECT_THAT(draw(map, kWideFigure).svg, HasSubstr(">speculative_fiction</text>"));
  EXPECT_THAT(draw(map, kNarrowFigure).svg, HasSubstr(">speculative_fiction</text>"));
}

TEST(HeatMap, WithoutRowsIsDrawnAllTheSame) { expect_sound(draw(HeatMap{}, kWideFigure).svg); }

TEST(SideBySide, IsAsLargeAsItsRows) {
  const Drawing one = draw(chart_of({{.name = "a", .points = {{0, 1}, {1, 2}}}}), kNarrowFigure);
  const Drawing all = side_by_side("panels", {one, one, one}, 2);
  EXPECT_EQ(all.size.width, 2 * one.size.width + 20);
  EXPECT_EQ(all.size.height, 2 * one.size.height + 20);
  expect_sound(all.svg);
}

}  // namespace
}  // namespace ballast::figures
