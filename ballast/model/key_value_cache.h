// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ballast/config/config.h"

namespace ballast::model {

// Keys and values of the tokens seen so far, of the heads of one layer that are here. Row b holds
// cached[b] tokens; rows may differ in length, so several prompts are continued in one batch.
struct LayerCache {
  at::Tensor keys;    // [R, heads_kv, S, W]
  at::Tensor values;  // [R, heads_kv, S, W]
};

class KeyValueCache {
 public:
  // For one of `shards` that divide the heads.
  KeyValueCache(const config::ModelConfig& config, int64_t rows, const at::TensorOptions& options,
                int64_t shards = 1);

  // Row `row` alone, empty: what is written there is written here.
  KeyValueCache emptied_row(int64_t row);
  // For one new token in each of these rows at these positions, [B] int64 both. A row may be there
  // several times, for tokens in a row; cached() of the whole does not change by it.
  // REQUIRES: kernels/cached_attention.h suits the model; a row is filled up to its first position.
  KeyValueCache places(const at::Tensor& rows, const at::Tensor& positions) const;

  std::vector<LayerCache>& layers() { return layers_; }
  int64_t size() const { return cached_.size(0); }      // B
  const at::Tensor& cached() const { return cached_; }  // [B] int64: tokens of each row
  const at::Tensor& row() const { return row_; }        // [B] int64: where it lies in the layers
  bool is_empty() const { return is_empty_; }           // and known to be, without a look
  void advance(int64_t tokens);         // after all layers took `tokens` new ones a row
  void forget(const at::Tensor& rows);  // [N] int64: these are empty again

 private:
  KeyValueCache() = default;

  at::Tensor cached_, row_;
  std::vector<LayerCache> layers_;
  bool is_empty_ = true;
};

}  // namespace ballast::model
