// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/report.h"

#include "ballast/studio/figures/png.h"
#include "ballast/studio/pages/sections.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"

namespace ballast::pages {

Page make_page(const Comparison& comparison) {
  Page page(comparison.title, comparison.what);
  add_summary(page, comparison);
  add_perplexity(page, comparison);
  add_balance(page, comparison);
  add_specialisation(page, comparison);
  add_domains(page, comparison);
  add_speed(page, comparison);
  add_assignment(page, comparison);
  add_sweep(page, comparison);
  add_records(page, comparison);
  return page;
}

namespace {

bool is_report(const fs::path& page) {
  const std::string text = read_text(page);
  constexpr const char* kOlderPage = " · Ballast report</title>";  // before it had the marker
  return text.find(kPageMarker) != text.npos || text.find(kOlderPage) != text.npos;
}

// Only a report may be replaced.
void check_folder(const fs::path& folder) {
  const fs::path page = folder / "index.html";
  if (!fs::exists(folder) || (fs::is_directory(folder) && fs::is_empty(folder))) return;
  if (!fs::is_directory(folder)) fail("{} is a file: choose another folder", folder.string());
  if (!fs::exists(page))
    fail("{} is not empty and holds no report: choose another folder", folder.string());
  if (!is_report(page))
    fail("{} was not written by `ballast report`: choose another folder", page.string());
}

}  // namespace

WrittenReport write_report(const Comparison& comparison, const fs::path& folder) {
  check_folder(folder);
  const Page page = make_page(comparison);
  WrittenReport written;
  written.page = folder / "index.html";
  const fs::path figures = folder / "figures";
  make_folder(folder);
  write_text_atomically(written.page, page.finish());  // first: it marks the folder as a report
  make_folder(figures);
  for (const FigureFile& figure : page.files()) {
    const fs::path svg = figures / (figure.name + ".svg"), png = figures / (figure.name + ".png");
    write_text_atomically(svg, figure.drawing.svg);
    written.figures.push_back(svg);
    if (!written.has_png) continue;
    written.has_png = figures::write_png(svg, png) == figures::PngResult::kWritten;
    if (written.has_png) written.figures.push_back(png);
  }
  return written;
}

}  // namespace ballast::pages
