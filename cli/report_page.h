// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "ballast/studio/pages/report.h"

namespace ballast::cli {

struct ReportOfPaths {
  pages::Comparison comparison;
  pages::WrittenReport written;
};
// Reads runs and experiments and writes their page with its figures to `folder`. Warns where
// figures could not be made as PNG too.
ReportOfPaths write_report_of(const std::vector<std::filesystem::path>& paths,
                              const std::filesystem::path& folder);

// Where the page of one run or experiment stands unless another place is asked for.
std::filesystem::path report_folder_of(const std::filesystem::path& run_or_experiment);

}  // namespace ballast::cli
