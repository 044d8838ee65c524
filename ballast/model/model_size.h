// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/config/config.h"

namespace ballast {

struct ModelSize {
  int64_t parameters = 0;
  double flops_per_token = 0;  // of a training step: forward and backward, attention included
};

// Counted from the shapes. A matrix of n weights costs 6 n operations a token (2 forward, 4
// backward); causal attention 6 L D S on average; embedding look-ups and norms are not counted.
ModelSize model_size(const ModelConfig& config);

}  // namespace ballast
