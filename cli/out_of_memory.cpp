// SPDX-License-Identifier: Apache-2.0
#include "cli/out_of_memory.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <string_view>

#include "ballast/system/progress.h"

namespace ballast::cli {
namespace {

constexpr const char* kAdvice =
    "take a smaller batch or model, more workers, or a machine that has more (`ballast plan` "
    "tells what a run takes)";

// Of the first line of /proc/self/statm, in pages: all that is mapped.
double mapped_bytes() {
  double pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

std::string out_of_memory() {
  return fmt::format("out of memory: this process has {}, and could not get more; {}",
                     format_bytes(mapped_bytes()), kAdvice);
}

std::string out_of_memory(const c10::Error& error) {
  const std::string_view text = error.what_without_backtrace();
  constexpr std::string_view kTried =
      "you tried to allocate ";  // of libtorch's allocator, in bytes
  const size_t at = text.find(kTried);
  uint64_t bytes = 0;
  if (at != text.npos) {
    const char* digits = text.data() + at + kTried.size();
    std::from_chars(digits, text.data() + text.size(), bytes);
  }
  if (bytes > 0) {
    return fmt::format("out of memory: {} bytes ({}) could not be had, this process has {}; {}",
                       bytes, format_bytes(static_cast<double>(bytes)),
                       format_bytes(mapped_bytes()), kAdvice);
  }
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) == nullptr) return "";
  return fmt::format("out of memory: {}; {}", text, kAdvice);  // a GPU's, which tells its numbers
}

}  // namespace ballast::cli
