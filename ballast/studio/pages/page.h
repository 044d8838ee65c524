// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ballast/studio/figures/bar_chart.h"
#include "ballast/studio/figures/heat_map.h"
#include "ballast/studio/figures/line_chart.h"

namespace ballast::pages {

struct Table {
  std::vector<std::string> head;               // plain text
  std::vector<std::vector<std::string>> rows;  // cells as HTML
  size_t text_columns = 1;                     // the first ones, aligned left; others are numbers
};

struct FigureFile {
  std::string name;  // without its ending
  figures::Drawing drawing;
};

// Stands in every page of ours: no other page is ever replaced.
inline constexpr const char* kPageMarker = "<meta name=\"generator\" content=\"ballast report\">";

// An HTML page in the making that needs nothing but itself. Texts are plain unless they are called
// HTML.
class Page {
 public:
  // `what`: what the page is of, below its title.
  explicit Page(std::string title, std::string what = {})
      : title_(std::move(title)), what_(std::move(what)) {}

  // `link`: what leads to it from the top of the page.
  void section(const std::string& id, const std::string& link, const std::string& heading);
  void subsection(const std::string& heading);
  void paragraph(const std::string& text);
  void lead(const std::string& text);   // what matters most in a section
  void note(const std::string& text);   // what is missing here
  void facts(const std::string& text);  // how numbers came about
  void html(const std::string& markup) { body_ += markup; }
  void table(const Table& table);
  // What stands between the two is folded until a reader opens it. In print it is open, or left
  // out.
  enum class InPrint { kOpen, kLeftOut };
  void begin_folded(const std::string& summary, InPrint in_print = InPrint::kOpen);
  void end_folded();

  // A figure in the page (its id is figure-FILE), wide and for phones, and as a file; `sentence`:
  // what is to be seen in it.
  template <typename Chart>
  void figure(const std::string& file, const Chart& chart, const std::string& sentence) {
    Chart with_heading = chart;
    if (with_heading.heading.empty()) with_heading.heading = chart.title;
    add_figure(
        {file, figures::draw(with_heading, figures::kWideFigure)},
        {figures::draw(chart, figures::kWideFigure), figures::draw(chart, figures::kNarrowFigure)},
        sentence);
  }
  // A figure that scrolls sideways on phones, and so needs no narrow version.
  void wide_figure(const std::string& file, const figures::HeatMap& map,
                   const std::string& sentence);
  // A file beside the page alone, with a link to it.
  void linked_figure(const std::string& file, const figures::HeatMap& map, const std::string& link,
                     const std::string& sentence);
  // Several small charts side by side as one figure; each has a heading. One alone is large.
  void figure(const std::string& file, const std::vector<figures::LineChart>& charts,
              const std::string& sentence);

  std::string finish() const;
  const std::vector<FigureFile>& files() const { return files_; }

 private:
  struct Inline {
    figures::Drawing wide, narrow;
  };
  void add_file(const std::string& file, figures::HeatMap map);
  void add_figure(FigureFile file, const Inline& drawings, const std::string& sentence);

  std::string title_, what_, body_;
  std::vector<std::pair<std::string, std::string>> sections_;  // id, link
  std::vector<FigureFile> files_;
};

// The page's style sheet, but for figures in the dark, and its script.
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace ballast::pages
