// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/config/config.h"

namespace ballast {

struct ModelSize {
  int64_t shared = 0;          // parameters every worker holds: all but the experts'
  int64_t per_expert = 0;      // of one expert, in all BASE layers together
  int64_t total = 0;           // shared + experts * per_expert
  int64_t active = 0;          // those a token meets: shared + per_expert
  double flops_per_token = 0;  // of a training step: forward and backward, attention included
};

// Counted from the shapes. A matrix of n weights costs 6 n operations a token (2 forward, 4
// backward); causal attention 6 L D S on average; a BASE layer's affinities, which have no
// gradient, 2 D E; embedding look-ups and norms are not counted.
ModelSize model_size(const Config& config);

}  // namespace ballast
