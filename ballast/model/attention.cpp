// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "ballast/kernels/attention.h"
#include "ballast/kernels/linear.h"
#include "ballast/model/initialization.h"

namespace ballast {

using at::Tensor;

Attention::Attention(const ModelConfig& config, const std::string& name, ParameterTable& table)
    : heads_(config.heads),
      qkv_(table.declare(matrix(name + ".qkv.weight", 3 * config.width, config.width))),
      qkv_bias_(
          table.declare(vector(name + ".qkv.bias", 3 * config.width, Initialization::zero()))),
      out_(
          table.declare(residual_matrix(name + ".out.weight", config.width, config.width, config))),
      out_bias_(table.declare(vector(name + ".out.bias", config.width, Initialization::zero()))) {}

Tensor Attention::forward(const Tensor& x, int64_t rows) const {
  return linear(causal_attention(linear(x, qkv_, qkv_bias_), rows, heads_), out_, out_bias_);
}

Tensor Attention::forward(const Tensor& x, LayerCache& cache) const {
  const int64_t rows = cache.keys.size(0), count = x.size(0) / rows, capacity = cache.keys.size(2);
  const auto [queries, keys, values] =
      split_heads(linear(x, qkv_, qkv_bias_), rows, heads_);  // [B, H, N, D/H]
  const Tensor steps = at::arange(count, cache.cached.options());
  const Tensor positions = cache.cached.unsqueeze(1) + steps;  // [B, N]
  const Tensor places = positions.view({rows, 1, count, 1}).expand_as(keys);
  cache.keys.scatter_(2, places, keys);
  cache.values.scatter_(2, places, values);
  // A new token sees the places up to its own.
  const Tensor seen =
      at::arange(capacity, cache.cached.options()) <= positions.unsqueeze(-1);  // [B, N, S]
  const Tensor mixed =
      at::scaled_dot_product_attention(queries, cache.keys, cache.values, seen.unsqueeze(1));
  return linear(mixed.transpose(1, 2).reshape(x.sizes()), out_, out_bias_);
}

}  // namespace ballast
