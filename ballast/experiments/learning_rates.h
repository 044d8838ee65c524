// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace ballast {

// `count` learning rates around `middle`, each sqrt(2) of the one before, ascending: what a sweep
// tries. The middle one is exact. REQUIRES: middle > 0, count is odd.
std::vector<double> learning_rates_around(double middle, size_t count);

}  // namespace ballast
