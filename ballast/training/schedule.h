// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "ballast/config/config.h"

namespace ballast::training {

// The learning rate of step `step` (from 0) of `steps`: linear warm-up to the highest value, then a
// decay that would reach the final one at step `steps`. Linear and cosine decay begin at once,
// stable in the last decay_part of all steps, linearly.
double learning_rate_at(int64_t step, int64_t steps, const config::OptimizerConfig& config);

// For people, where the warm-up is longer than the run: what happens then. Else empty.
std::string long_warm_up(int64_t steps, const config::OptimizerConfig& config);

}  // namespace ballast::training
