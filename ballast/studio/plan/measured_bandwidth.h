// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace ballast::plan {

// Bytes a second that `threads` (0: all cores) read and write together when each adds one array to
// another, both far larger than any cache; the best of five. Takes a few tenths of a second.
double measure_memory_bandwidth(size_t threads);

}  // namespace ballast::plan
