// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ballast/config/config.h"

namespace ballast::model {

// Keys and values of the tokens seen so far, of the heads of one layer that are here. Row b holds
// cached[b] tokens; rows may differ in length, so several prompts are continued in one batch.
struct LayerCache {
  at::Tensor keys;    // [B, heads_kv, S, W]
  at::Tensor values;  // [B, heads_kv, S, W]
  at::Tensor cached;  // [B] int64, the same tensor in every layer
};

class KeyValueCache {
 public:
  // For one of `shards` that divide the heads.
  KeyValueCache(const config::ModelConfig& config, int64_t rows, const at::TensorOptions& options,
                int64_t shards = 1);

  std::vector<LayerCache>& layers() { return layers_; }
  const at::Tensor& cached() const { return cached_; }  // [B] int64
  void advance(int64_t tokens);  // after all layers took `tokens` new ones a row
  // Copies the single row of `other` into row `row` of this cache.
  void take_row(int64_t row, const KeyValueCache& other);

 private:
  at::Tensor cached_;
  std::vector<LayerCache> layers_;
};

}  // namespace ballast::model
