// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/parallel_ranges.h"

#include <ATen/Parallel.h>

namespace ballast::kernels {

void parallel_ranges(int64_t count, int64_t grain,
                     const std::function<void(int64_t begin, int64_t end)>& body) {
  at::parallel_for(0, count, grain, body);
}

}  // namespace ballast::kernels
