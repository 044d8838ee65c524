// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace ballast::kernels {

// Calls body(begin, end) for ranges that make up [0, count), on libtorch's threads: about equal
// ones, as many as there are threads but at most count / grain, rounded up. For rooms that are
// compiled without OpenMP: there at::parallel_for is a loop on one thread.
void parallel_ranges(int64_t count, int64_t grain,
                     const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace ballast::kernels
