// SPDX-License-Identifier: Apache-2.0
#include "ballast/pages/report.h"

#include "ballast/figures/png.h"
#include "ballast/pages/sections.h"
#include "ballast/system/file.h"

namespace ballast {

Page make_page(const Comparison& comparison) {
  Page page(comparison.title);
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

WrittenReport write_report(const Comparison& comparison, const fs::path& folder) {
  const Page page = make_page(comparison);
  WrittenReport written;
  written.page = folder / "index.html";
  const fs::path figures = folder / "figures";
  make_folder(figures);
  for (const FigureFile& figure : page.files()) {
    const fs::path svg = figures / (figure.name + ".svg"), png = figures / (figure.name + ".png");
    write_text_atomically(svg, figure.drawing.svg);
    written.figures.push_back(svg);
    if (!written.has_png) continue;
    written.has_png = write_png(svg, png) == PngResult::kWritten;
    if (written.has_png) written.figures.push_back(png);
  }
  write_text_atomically(written.page, page.finish());
  return written;
}

}  // namespace ballast
