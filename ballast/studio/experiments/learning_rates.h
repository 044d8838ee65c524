// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "ballast/record/experiment_file.h"

namespace ballast::experiments {

// `count` learning rates around `middle`, each sqrt(2) of the one before, ascending: what a sweep
// tries. The middle one is exact. REQUIRES: middle > 0, count is odd.
std::vector<double> learning_rates_around(double middle, size_t count);

// What a sweep has still to try. Those around `middle` come first. Then, where the best is the
// lowest or highest tried, the next beyond it, two at most. Where all diverged, lower ones.
std::vector<double> rates_to_try(const std::vector<record::SweptRate>& swept, double middle,
                                 size_t count);

// The one with the lowest loss; none: all diverged, or there are none.
std::optional<double> best_rate(const std::vector<record::SweptRate>& swept);

}  // namespace ballast::experiments
