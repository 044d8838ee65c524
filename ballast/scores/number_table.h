// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/system/file.h"

namespace ballast {

struct NumberTable {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<double> values;  // [rows, columns]
};

// Reads a table of numbers from text, a row a line, separated by commas, semicolons, or tabs and
// spaces. A first line without any number is taken for titles; empty lines and those that start
// with # are passed over; nan and inf are numbers. UserError names file, line and column.
NumberTable read_number_table(const fs::path& path);

}  // namespace ballast
