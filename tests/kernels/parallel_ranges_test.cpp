// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/parallel_ranges.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace ballast::kernels {
namespace {

TEST(ParallelRanges, VisitEachIndexOnceOnSeveralThreads) {
  const int threads_before = at::get_num_threads();
  at::set_num_threads(2);
  std::mutex mutex;
  std::vector<int> visits(1000);
  std::set<std::thread::id> threads;
  parallel_ranges(1000, 10, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
    for (; begin < end; ++begin) ++visits.at(static_cast<size_t>(begin));
  });
  at::set_num_threads(threads_before);
  EXPECT_EQ(visits, std::vector<int>(1000, 1));
  EXPECT_EQ(threads.size(), 2);
}

TEST(ParallelRanges, OfNothingCallNothing) {
  parallel_ranges(0, 1, [](int64_t, int64_t) { FAIL(); });
}

}  // namespace
}  // namespace ballast::kernels
