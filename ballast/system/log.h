// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "ballast/system/line_layout.h"

namespace ballast {

// What people read while the program works goes to stderr, so that stdout holds results alone.
// Lines are written whole, with control characters escaped (printable()): file names and samples
// may hold any. A progress bar on the terminal is cleared before and redrawn after. console.h tells
// what --quiet, --log and a terminal make of it.
void log_line(std::string_view line);
// A line of several parts, " | " between them, that fits the width of a terminal. Elsewhere it is
// whole.
void log_parts(std::vector<LinePart> parts);
// What --quiet does not keep back. The reader finds "warning: " or "ballast: " at its start.
void log_warning_line(std::string_view line);
void log_error_line(std::string_view line);

template <typename... Args>
void log_info(fmt::format_string<Args...> message, Args&&... args) {
  log_line(fmt::format(message, std::forward<Args>(args)...));
}

template <typename... Args>
void log_warning(fmt::format_string<Args...> message, Args&&... args) {
  log_warning_line("warning: " + fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace ballast
