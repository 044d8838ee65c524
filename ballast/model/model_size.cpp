// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/model_size.h"

namespace ballast {

ModelSize model_size(const ModelConfig& config) {
  const int64_t d = config.width, f = config.feed_forward_width();
  const int64_t block_matrices = 4 * d * d + 2 * d * f;
  const int64_t block_vectors = (3 * d + d) + (f + d) + 4 * d;  // biases and two norms
  const int64_t embedding = config.vocabulary * d;
  ModelSize size;
  size.parameters =
      embedding + config.context * d + config.layers * (block_matrices + block_vectors) + 2 * d;
  const auto matrices = static_cast<double>(config.layers * block_matrices + embedding);
  size.flops_per_token = 6 * matrices + 6 * static_cast<double>(config.layers * d * config.context);
  return size;
}

}  // namespace ballast
