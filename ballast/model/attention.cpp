// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <string>

#include "ballast/kernels/attention.h"
#include "ballast/model/initialization.h"
#include "ballast/model/shard_layers.h"

namespace ballast::model {

using at::Tensor;

namespace {

std::string name_of(int64_t block) { return "block." + std::to_string(block) + ".attention"; }

}  // namespace

Attention::Attention(const config::ModelConfig& config, int64_t block,
                     parameters::ParameterTable& table, comm::Communicator& shards)
    : block_(block),
      heads_(config.heads / shards.size()),
      shards_(shards),
      qkv_(table.declare(parameters::divided(
          matrix(name_of(block) + ".qkv.weight", 3 * config.width, config.width),
          division(shards, 0, 3)))),
      qkv_bias_(
          table.declare(parameters::divided(vector(name_of(block) + ".qkv.bias", 3 * config.width,
                                                   parameters::Initialization::zero()),
                                            division(shards, 0, 3)))),
      out_(table.declare(parameters::divided(
          residual_matrix(name_of(block) + ".out.weight", config.width, config.width, config),
          division(shards, 1)))),
      out_bias_(table.declare(vector(name_of(block) + ".out.bias", config.width,
                                     parameters::Initialization::zero()))) {}

Tensor Attention::forward(const Tensor& x, int64_t rows, step::StepWatch* watch) const {
  const ShardCall call{shards_, label(), watch};
  const Tensor qkv = shard_linear(call, x, qkv_, qkv_bias_);
  return sum_of_shard_linears(call, kernels::causal_attention(qkv, rows, heads_), out_, out_bias_);
}

Tensor Attention::forward(const Tensor& x, LayerCache& cache) const {
  const int64_t rows = cache.keys.size(0), count = x.size(0) / rows, capacity = cache.keys.size(2);
  const auto [queries, keys, values] =
      kernels::split_heads(shard_linear({shards_, label()}, x, qkv_, qkv_bias_), rows,
                           heads_);  // [B, H, N, D/H]
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
  return sum_of_shard_linears({shards_, label()}, mixed.transpose(1, 2).reshape({x.size(0), -1}),
                              out_, out_bias_);
}

}  // namespace ballast::model
