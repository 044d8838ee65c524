// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace ballast {

// What people read while the program works goes to stderr, so that stdout holds results alone.
// Lines are written whole, with control characters escaped (printable()): file names and samples
// may hold any. A progress bar on the terminal is cleared before and redrawn after.
void log_line(std::string_view line);

template <typename... Args>
void log_info(fmt::format_string<Args...> message, Args&&... args) {
  log_line(fmt::format(message, std::forward<Args>(args)...));
}

template <typename... Args>
void log_warning(fmt::format_string<Args...> message, Args&&... args) {
  log_line("warning: " + fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace ballast
