// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/compute_rate.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "ballast/kernels/gemm.h"

namespace ballast::training {

double measure_matrix_rate(const model::ComputePlace& place) {
  const int64_t size = place.device.is_cpu() ? 768 : 8192;
  const at::Tensor a = at::full({size, size}, 0.5, at::device(place.device).dtype(place.working));
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor c = kernels::multiply_transposed(a, a, {});
    c[0][0].item();  // waits for a GPU
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, 2.0 * static_cast<double>(size * size * size) / seconds);
  }
  return best;
}

uint64_t memory_in_use(const model::ComputePlace& place) {
  if (!place.device.is_cpu()) {
    const auto stats =
        c10::getDeviceAllocator(place.device.type())->getDeviceStats(place.device.index());
    return static_cast<uint64_t>(stats.reserved_bytes[0].current);
  }
  uint64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace ballast::training
