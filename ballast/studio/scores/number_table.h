// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/system/file.h"

namespace ballast::scores {

struct NumberTable {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;  // [rows, columns]
};

// A table from text, a row a line, separated by commas, semicolons, or tabs and spaces. Titles on
// the first line, empty lines and those with # are passed over. UserError names line and column.
NumberTable read_number_table(const fs::path& path);

}  // namespace ballast::scores
