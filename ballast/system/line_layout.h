// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

// A part of a line. Where the line is too long, those of the least importance are left out.
struct LinePart {
  std::string text;
  int importance = 0;
};

// What a progress bar shows.
struct Bar {
  std::string title;
  std::optional<double> share = {};  // from 0 to 1; none: no bar and no percentage
  std::vector<LinePart> parts = {};
};

// What stands before and after the filled part of a bar; a terminal gives it no room.
struct BarColour {
  std::string_view on = "", off = "";
};

constexpr size_t kAnyColumns = static_cast<size_t>(-1);

// Columns that a terminal needs for a UTF-8 text: one for each character.
size_t columns_of(std::string_view text);

// The parts, " | " between them, in at most `columns`: of those that do not fit the least important
// are left out first, and of equals the last. One that is too long by itself is cut.
std::string fit_line(const std::vector<LinePart>& parts, size_t columns);

// "train [====    ]  50% | step 5/10 | eta 2.0s" in at most `columns`. The bar becomes shorter
// before parts are left out.
std::string fit_bar(const Bar& bar, size_t columns, BarColour colour = {});

// The same without the bar itself, whole: a line of a file.
std::string line_of(const Bar& bar);

}  // namespace ballast
