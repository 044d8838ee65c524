// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/log.h"

#include "ballast/system/console.h"
#include "ballast/system/utf8.h"

namespace ballast {

void log_line(std::string_view line) { put_line(Weight::kInfo, {{printable(line)}}); }

void log_parts(std::vector<LinePart> parts) {
  for (LinePart& part : parts) part.text = printable(part.text);
  put_line(Weight::kInfo, parts);
}

void log_warning_line(std::string_view line) { put_line(Weight::kWarning, {{printable(line)}}); }

void log_error_line(std::string_view line) { put_line(Weight::kError, {{printable(line)}}); }

}  // namespace ballast
