// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/page.h"

#include <fmt/format.h>

#include "ballast/studio/figures/markup.h"
#include "ballast/studio/figures/palette.h"
#include "ballast/studio/figures/svg.h"
#include "ballast/system/version.h"

namespace ballast::pages {

using figures::markup_text;

namespace {

// What is wider than the page scrolls; the script tells that in words, edges tell it without.
std::string scrolling(const std::string& content, const char* what) {
  return fmt::format(
      "<p class=\"hint\" hidden>The {} is wider than the page: scroll it sideways →</p>\n"
      "<div class=\"scroll\" tabindex=\"0\">{}</div>\n",
      what, content);
}

// Drawings bring the colours of light paper.
std::string figures_in_the_dark() {
  std::string rules;
  for (const figures::Shade& shade : figures::dark_shades())
    rules += fmt::format(
        "svg[fill=\"{0}\"], svg [fill=\"{0}\"] {{ fill: {1} }} svg [stroke=\"{0}\"] {{ stroke: {1} "
        "}}\n",
        shade.light, shade.dark);
  return "@media screen and (prefers-color-scheme: dark) {\n" + rules + "}\n";
}

}  // namespace

void Page::section(const std::string& id, const std::string& link, const std::string& heading) {
  if (!sections_.empty()) body_ += "</section>\n";
  body_ += fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n", id, markup_text(heading));
  sections_.emplace_back(id, link);
}

void Page::subsection(const std::string& heading) {
  body_ += fmt::format("<h3>{}</h3>\n", markup_text(heading));
}

void Page::paragraph(const std::string& text) {
  body_ += fmt::format("<p>{}</p>\n", markup_text(text));
}

void Page::lead(const std::string& text) {
  body_ += fmt::format("<p class=\"lead\">{}</p>\n", markup_text(text));
}

void Page::note(const std::string& text) {
  body_ += fmt::format("<p class=\"note\">{}</p>\n", markup_text(text));
}

void Page::facts(const std::string& text) {
  body_ += fmt::format("<p class=\"facts\">{}</p>\n", markup_text(text));
}

void Page::table(const Table& table) {
  const auto cell_class = [&](size_t column) {
    return column < table.text_columns ? "" : " class=\"number\"";
  };
  std::string markup = "<table>\n<thead><tr>";
  for (size_t i = 0; i < table.head.size(); ++i)
    markup += fmt::format("<th{}>{}</th>", cell_class(i), markup_text(table.head[i]));
  markup += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    markup += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      markup += fmt::format("<td{}>{}</td>", cell_class(i), row[i]);
    markup += "</tr>\n";
  }
  body_ += scrolling(markup + "</tbody></table>", "table");
}

void Page::begin_folded(const std::string& summary, InPrint in_print) {
  body_ += fmt::format("<details{}><summary>{}</summary>\n",
                       in_print == InPrint::kOpen ? "" : " class=\"bulk\"", markup_text(summary));
}

void Page::end_folded() { body_ += "</details>\n"; }

void Page::figure(const std::string& file, const std::vector<figures::LineChart>& charts,
                  const std::string& sentence) {
  if (charts.size() == 1) {
    figure(file, charts.front(), sentence);
    return;
  }
  std::string panels;
  std::vector<figures::Drawing> drawings;
  for (const figures::LineChart& chart : charts) {
    drawings.push_back(figures::draw(chart, figures::kNarrowFigure));
    panels += "<div>" + drawings.back().svg + "</div>\n";
  }
  const std::string title = charts.empty() ? "" : charts.front().title;
  files_.push_back({file, figures::side_by_side(title, drawings, 3)});
  body_ += fmt::format(
      "<figure id=\"figure-{}\">\n<div class=\"panels\">\n{}</div>\n<figcaption>{}</figcaption>\n"
      "</figure>\n",
      file, panels, markup_text(sentence));
}

void Page::wide_figure(const std::string& file, const figures::HeatMap& map,
                       const std::string& sentence) {
  body_ += fmt::format("<figure id=\"figure-{}\">\n{}<figcaption>{}</figcaption>\n</figure>\n",
                       file, scrolling(figures::draw(map, figures::kWideFigure).svg, "map"),
                       markup_text(sentence));
  add_file(file, map);
}

void Page::linked_figure(const std::string& file, const figures::HeatMap& map,
                         const std::string& link, const std::string& sentence) {
  body_ += fmt::format("<p><a href=\"figures/{}.svg\">{}</a>. {}</p>\n", file, markup_text(link),
                       markup_text(sentence));
  add_file(file, map);
}

void Page::add_file(const std::string& file, figures::HeatMap map) {
  if (map.heading.empty()) map.heading = map.title;
  files_.push_back({file, figures::draw(map, figures::kWideFigure)});
}

void Page::add_figure(FigureFile file, const Inline& drawings, const std::string& sentence) {
  body_ += fmt::format(
      "<figure id=\"figure-{}\">\n<div class=\"wide\">{}</div>\n<div class=\"narrow\">{}</div>\n"
      "<figcaption>{}</figcaption>\n</figure>\n",
      file.name, drawings.wide.svg, drawings.narrow.svg, markup_text(sentence));
  files_.push_back(std::move(file));
}

std::string Page::finish() const {
  std::string links;
  for (const auto& [id, link] : sections_)
    links += fmt::format("<a href=\"#{}\">{}</a>\n", id, markup_text(link));
  return fmt::format(
      R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{7}
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{0}{8} · Ballast report</title>
<style>{1}{9}</style>
</head>
<body>
<header><p class="kind">Ballast report</p><h1>{0}</h1>{10}
<nav>{2}</nav></header>
<main>
{3}{4}</main>
<footer>Written by ballast {5}. Figures as SVG and PNG are in the folder figures beside this page.</footer>
<script>{6}</script>
</body>
</html>
)html",
      markup_text(title_), kPageStyle, links, body_, sections_.empty() ? "" : "</section>\n",
      markup_text(version()), kPageScript, kPageMarker,
      what_.empty() ? "" : " · " + markup_text(what_), figures_in_the_dark(),
      what_.empty() ? "" : fmt::format("\n<p class=\"what\">{}</p>", markup_text(what_)));
}

}  // namespace ballast::pages
