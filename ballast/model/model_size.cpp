// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/model_size.h"

namespace ballast {

ModelSize model_size(const Config& config) {
  const ModelConfig& m = config.model;
  const int64_t d = m.width, f = m.feed_forward_width();
  const int64_t block_matrices = 4 * d * d + 2 * d * f;
  const int64_t block_vectors = (3 * d + d) + (f + d) + 4 * d;  // biases and two norms
  const int64_t embedding = m.vocabulary * d;
  const int64_t layers = config.experts.layers;
  const int64_t sublayers = layers * config.experts.sublayers_of_layer();
  ModelSize size;
  size.shared = embedding + m.context * d + m.layers * (block_matrices + block_vectors) + 2 * d +
                layers * config.experts.count * d;
  size.per_expert = sublayers * (2 * d * f + (f + d) + 2 * d);
  size.total = size.shared + (layers > 0 ? config.experts.count * size.per_expert : 0);
  size.active = size.shared + size.per_expert;
  const auto matrices =
      static_cast<double>(m.layers * block_matrices + embedding + sublayers * 2 * d * f);
  size.flops_per_token = 6 * matrices + 6 * static_cast<double>(m.layers * d * m.context) +
                         2 * static_cast<double>(layers * d * config.experts.count);
  return size;
}

}  // namespace ballast
