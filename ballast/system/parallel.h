// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

namespace ballast {

// Cores this process may use, by its affinity and its control group's quota.
size_t num_cores();

// Cores, rounded up, that a control group's cpu.max allows ("150000 100000": 2); 0: no limit.
size_t cores_of_quota(std::string_view cpu_max);

// Calls body(i) for each i in [0, count) on up to `threads` threads (0: num_cores()), in no
// particular order, and returns when all are done. The first exception thrown is rethrown here.
void parallel_for(size_t count, size_t threads, const std::function<void(size_t)>& body);

}  // namespace ballast
