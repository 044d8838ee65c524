// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/key_value_cache.h"

#include <ATen/ops/zeros.h>

namespace ballast::model {

KeyValueCache::KeyValueCache(const config::ModelConfig& config, int64_t rows,
                             const at::TensorOptions& options, int64_t shards)
    : cached_(at::zeros({rows}, options.dtype(at::kLong))) {
  const std::vector<int64_t> shape = {rows, config.kv_heads() / shards, config.context,
                                      config.width_of_head()};
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    layers_.push_back({at::zeros(shape, options), at::zeros(shape, options), cached_});
  }
}

void KeyValueCache::advance(int64_t tokens) { cached_.add_(tokens); }

void KeyValueCache::take_row(int64_t row, const KeyValueCache& other) {
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    layers_[layer].keys[row].copy_(other.layers_[layer].keys[0]);
    layers_[layer].values[row].copy_(other.layers_[layer].values[0]);
  }
  cached_[row].copy_(other.cached_[0]);
}

}  // namespace ballast::model
