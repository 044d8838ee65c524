// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/mapped_ranges.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <string>

#include "ballast/system/console.h"
#include "ballast/system/utf8.h"

namespace ballast {
namespace {

// Ranges are linked and used again, never freed: a signal handler may walk them at any moment.
struct Range {
  std::atomic<const char*> begin = nullptr;  // nullptr: not in use
  std::atomic<size_t> size = 0;
  std::string name;
  Range* next = nullptr;
};

// A signal handler can reach nothing but globals.
std::atomic<Range*> g_ranges = nullptr;
std::atomic<int> g_exit_code = 0;

std::mutex& ranges_mutex() {
  static std::mutex mutex;
  return mutex;
}

void on_bus_error(int, siginfo_t* info, void*) {
  const auto* address = static_cast<const char*>(info->si_addr);
  for (const Range* range = g_ranges; range != nullptr; range = range->next) {
    const char* begin = range->begin;
    if (begin == nullptr || address < begin || address >= begin + range->size) continue;
    write_in_signal({"ballast: cannot read ", range->name,
                     ": it has become shorter while it was in use, or its disk fails; bring it "
                     "back and start again\n"});
    ::_exit(g_exit_code);
  }
  std::signal(SIGBUS, SIG_DFL);  // not of a file: the same again, as it would have been
}

}  // namespace

void explain_lost_mappings(int exit_code) {
  g_exit_code = exit_code;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigaction(SIGBUS, &action, nullptr);
}

void remember_mapping(const void* data, size_t size, const std::filesystem::path& path) {
  const std::lock_guard lock(ranges_mutex());
  Range* range = g_ranges;
  while (range != nullptr && range->begin != nullptr) range = range->next;
  const bool is_new = range == nullptr;
  if (is_new) range = new Range;
  range->name = printable(path.string());
  range->size = size;
  range->begin = static_cast<const char*>(data);
  if (!is_new) return;
  range->next = g_ranges;
  g_ranges = range;
}

void forget_mapping(const void* data) {
  const std::lock_guard lock(ranges_mutex());
  for (Range* range = g_ranges; range != nullptr; range = range->next) {
    if (range->begin == data) range->begin = nullptr;
  }
}

}  // namespace ballast
