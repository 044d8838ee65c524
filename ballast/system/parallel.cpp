// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ballast {

namespace {

size_t cores_by_affinity() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    return static_cast<size_t>(std::max(1, CPU_COUNT(&set)));
  }
  return std::max(1U, std::thread::hardware_concurrency());
}

// Within a container this is the container's own group; elsewhere there is no such file.
size_t read_quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string line;
  return std::getline(file, line) ? cores_of_quota(line) : 0;
}

}  // namespace

size_t num_cores() {
  static const size_t quota = read_quota();
  const size_t cores = cores_by_affinity();
  return quota == 0 ? cores : std::min(cores, quota);
}

size_t cores_of_quota(std::string_view cpu_max) {
  const char* const last = cpu_max.data() + cpu_max.size();
  uint64_t quota = 0, period = 0;  // microseconds of processor time in each period
  const auto [end, error] = std::from_chars(cpu_max.data(), last, quota);
  if (error != std::errc() || end == last) return 0;  // "max"
  if (std::from_chars(end + 1, last, period).ec != std::errc() || period == 0) return 0;
  return static_cast<size_t>(quota / period + (quota % period != 0));
}

void parallel_for(size_t count, size_t threads, const std::function<void(size_t)>& body) {
  threads = std::min(threads ? threads : num_cores(), count);
  std::atomic<size_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < count;) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (size_t t = 1; t < threads; ++t) helpers.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ballast
