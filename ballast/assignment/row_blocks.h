// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "ballast/assignment/active_problem.h"
#include "ballast/system/parallel.h"

namespace ballast::assignment {

// Rows are worked on in blocks of a fixed size, so that sums do not depend on the thread count.
constexpr int64_t kRowsPerBlock = 1024;

// So many scores are worth a thread. Starting one costs as much as reading a hundred thousand.
constexpr int64_t kWorthAThread = int64_t{1} << 20;

inline int64_t num_row_blocks(const ActiveProblem& problem) {
  return (problem.tokens + kRowsPerBlock - 1) / kRowsPerBlock;
}

// Calls body(begin, end) for each block of rows. Threads start only where there is work for them.
template <typename Body>
void for_row_blocks(const ActiveProblem& problem, size_t threads, const Body& body) {
  const int64_t blocks = num_row_blocks(problem);
  const auto run = [&](size_t block) {
    const int64_t begin = static_cast<int64_t>(block) * kRowsPerBlock;
    body(begin, std::min(begin + kRowsPerBlock, problem.tokens));
  };
  if (threads == 1 || problem.tokens * problem.experts < kWorthAThread) {
    for (int64_t block = 0; block < blocks; ++block) run(static_cast<size_t>(block));
  } else {
    parallel_for(static_cast<size_t>(blocks), threads, run);
  }
}

}  // namespace ballast::assignment
