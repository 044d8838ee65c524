// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/plan/measured_bandwidth.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "ballast/system/parallel.h"

namespace ballast::plan {

double measure_memory_bandwidth(size_t threads) {
  const size_t count = threads > 0 ? threads : num_cores();
  constexpr size_t kNumbers = size_t{1} << 23;  // of each thread's arrays, 32 MiB
  std::vector<std::vector<float>> sums(count), terms(count);
  parallel_for(count, count, [&](size_t i) {
    sums[i].assign(kNumbers, 0);
    terms[i].assign(kNumbers, 1);
  });
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    parallel_for(count, count, [&](size_t i) {
      float* const sum = sums[i].data();
      const float* const term = terms[i].data();
      for (size_t k = 0; k < kNumbers; ++k) sum[k] += term[k];
    });
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const auto bytes = static_cast<double>(3 * sizeof(float) * kNumbers * count);
    best = std::max(best, bytes / seconds);
  }
  return best;
}

}  // namespace ballast::plan
