// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ballast/studio/pages/comparison.h"

namespace ballast::pages {

// What was written.
struct WrittenReport {
  std::filesystem::path page;
  std::vector<std::filesystem::path> figures;  // .svg, and .png where they could be made
  bool has_png = true;                         // false: there is no rsvg-convert
};

// Writes `folder`/index.html, a page that needs nothing but itself, and folder/figures with the
// same figures as files. Of an earlier report there, files of the same names are replaced. Throws
// UserError where the folder holds anything but a report, and leaves it as it is.
WrittenReport write_report(const Comparison& comparison, const std::filesystem::path& folder);

}  // namespace ballast::pages
