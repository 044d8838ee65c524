// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace ballast {

// Cores this process may use.
size_t num_cores();

// Calls body(i) for each i in [0, count) on up to `threads` threads (0: num_cores()), in no
// particular order, and returns when all are done. The first exception thrown is rethrown here.
void parallel_for(size_t count, size_t threads, const std::function<void(size_t)>& body);

}  // namespace ballast
