// SPDX-License-Identifier: Apache-2.0
#include "cli/report_page.h"

#include "ballast/model/model_size.h"
#include "ballast/system/log.h"

namespace ballast::cli {
namespace {

pages::ModelCounts count_model(const config::Config& config) {
  const model::ModelSize size = model::model_size(config);
  return {static_cast<double>(size.total), static_cast<double>(size.active), size.flops_per_token};
}

}  // namespace

ReportOfPaths write_report_of(const std::vector<std::filesystem::path>& paths,
                              const std::filesystem::path& folder) {
  ReportOfPaths report;
  report.comparison = pages::read_comparison(paths, count_model);
  report.written = pages::write_report(report.comparison, folder);
  if (!report.written.has_png)
    log_warning(
        "figures were written as SVG alone: PNG takes the program rsvg-convert (Debian: apt-get "
        "install librsvg2-bin)");
  return report;
}

std::filesystem::path report_folder_of(const std::filesystem::path& run_or_experiment) {
  return run_or_experiment / "report";
}

}  // namespace ballast::cli
