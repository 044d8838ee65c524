// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ballast::inference {

struct SamplingOptions {
  double temperature = 1.0;  // 0: always the most likely token
  int64_t top_k = 0;         // keep the k most likely; 0: all
  double top_p = 1.0;        // keep the most likely ones that together reach this probability
};

// Picks a token by its logits. `uniform` in [0, 1) decides among what is kept; ties in likelihood
// go to the lower id. Throws std::invalid_argument if no logit is finite.
int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform);

}  // namespace ballast::inference
