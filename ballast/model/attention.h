// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "ballast/config/config.h"
#include "ballast/kernels/parameter.h"
#include "ballast/model/key_value_cache.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast {

// Multi-head causal self-attention: tokens look at themselves and at what came before.
class Attention {
 public:
  Attention(const ModelConfig& config, const std::string& name, ParameterTable& table);

  // x [B * S, D] -> [B * S, D]
  at::Tensor forward(const at::Tensor& x, int64_t rows) const;
  // New tokens x [B * N, D] attend to the cache and to themselves; the cache takes them in.
  at::Tensor forward(const at::Tensor& x, LayerCache& cache) const;

 private:
  int64_t heads_;
  const Parameter &qkv_, &qkv_bias_, &out_, &out_bias_;
};

}  // namespace ballast
