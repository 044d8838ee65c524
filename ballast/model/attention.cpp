// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <vector>

#include "ballast/kernels/attention.h"
#include "ballast/kernels/cached_attention.h"
#include "ballast/model/initialization.h"
#include "ballast/model/shard_layers.h"

namespace ballast::model {

using at::Tensor;

namespace {

std::string name_of(int64_t block) { return "block." + std::to_string(block) + ".attention"; }

// Of queries, keys and values.
std::vector<int64_t> rows_of_qkv(const config::ModelConfig& config) {
  return {config.query_width(), config.kv_width(), config.kv_width()};
}

const kernels::Parameter& declare_qkv_bias(const config::ModelConfig& config, int64_t block,
                                           parameters::ParameterTable& table,
                                           const comm::Communicator& shards) {
  if (!config.has_qkv_biases()) return kernels::no_parameter();
  return table.declare(parameters::divided(
      vectors(name_of(block) + ".qkv.bias", rows_of_qkv(config)), division(shards, 0)));
}

const kernels::Parameter& declare_out_bias(const config::ModelConfig& config, int64_t block,
                                           parameters::ParameterTable& table) {
  if (!config.has_biases()) return kernels::no_parameter();
  return table.declare(
      vector(name_of(block) + ".out.bias", config.width, parameters::Initialization::zero()));
}

// A norm of queries or keys whose width, all heads together, is `width`.
const kernels::Parameter& declare_head_norm(const config::ModelConfig& config,
                                            const std::string& name, int64_t width,
                                            parameters::ParameterTable& table,
                                            const comm::Communicator& shards) {
  const auto one = parameters::Initialization::one();
  if (config.query_key_norm == config::QueryKeyNorm::kNone) return kernels::no_parameter();
  if (config.query_key_norm == config::QueryKeyNorm::kWidth)
    return table.declare(parameters::divided(vector(name, width, one), division(shards, 0)));
  parameters::SegmentSpec spec = vector(name, config.width_of_head(), one);
  // A shard has the gradient of its own heads: it is summed as that of a router is.
  if (shards.size() > 1) spec.owner = parameters::Owner::kRouter;
  return table.declare(std::move(spec));
}

}  // namespace

Attention::Attention(const config::ModelConfig& config, int64_t block,
                     parameters::ParameterTable& table, comm::Communicator& shards)
    : block_(block),
      norm_(config.query_key_norm),
      epsilon_(config.norm_epsilon),
      heads_{config.heads / shards.size(), config.kv_heads() / shards.size(),
             config.width_of_head()},
      shards_(shards),
      qkv_(table.declare(parameters::divided(
          multiplied(matrices(name_of(block) + ".qkv.weight", rows_of_qkv(config), config.width)),
          division(shards, 0)))),
      qkv_bias_(declare_qkv_bias(config, block, table, shards)),
      query_norm_(declare_head_norm(config, name_of(block) + ".query_norm.weight",
                                    config.query_width(), table, shards)),
      key_norm_(declare_head_norm(config, name_of(block) + ".key_norm.weight", config.kv_width(),
                                  table, shards)),
      out_(table.declare(parameters::divided(
          multiplied(residual_matrix(name_of(block) + ".out.weight", config.width,
                                     config.query_width(), config)),
          division(shards, 1)))),
      out_bias_(declare_out_bias(config, block, table)) {}

Tensor Attention::project(const Tensor& x, step::StepWatch* watch) const {
  const Tensor qkv = shard_linear({shards_, label(), watch}, x, qkv_, qkv_bias_);
  if (norm_ != config::QueryKeyNorm::kWidth) return qkv;
  return norm_over_shards({shards_, label(), watch}, qkv, {query_norm_, key_norm_, epsilon_});
}

kernels::Turning Attention::turning(const RopeTables& rope) const {
  kernels::Turning turning;
  turning.cosines = rope.cosines;
  turning.sines = rope.sines;
  turning.epsilon = epsilon_;
  if (norm_ == config::QueryKeyNorm::kHead) {
    turning.query_norm = query_norm_;
    turning.key_norm = key_norm_;
  }
  return turning;
}

Tensor Attention::forward(const Tensor& x, const Sequences& of, step::StepWatch* watch,
                          BiasGradient of_out_bias) const {
  const Tensor mixed =
      kernels::causal_attention(project(x, watch), of.rows, heads_, turning(of.rope), of.documents);
  return sum_of_shard_linears({shards_, label(), watch}, mixed, out_,
                              bias_of(out_bias_, of_out_bias));
}

// Nothing was there before.
Tensor Attention::mix_first(const Tensor& qkv, int64_t rows, const LayerCache& layer) const {
  const auto [queries, keys, values] = kernels::split_heads(qkv, rows, heads_);  // [B, heads, N, W]
  layer.keys.narrow(2, 0, keys.size(2)).copy_(keys);
  layer.values.narrow(2, 0, keys.size(2)).copy_(values);
  return kernels::causal_attention(qkv, rows, heads_);
}

Tensor Attention::mix_more(const Tensor& qkv, const KeyValueCache& cache,
                           const LayerCache& layer) const {
  const int64_t rows = cache.size(), count = qkv.size(0) / rows, capacity = layer.keys.size(2);
  const auto [queries, keys, values] = kernels::split_heads(qkv, rows, heads_);
  const Tensor steps = at::arange(count, cache.cached().options());
  const Tensor positions = cache.cached().unsqueeze(1) + steps;  // [B, N]
  const Tensor places = positions.view({rows, 1, count, 1}).expand_as(keys);
  layer.keys.scatter_(2, places, keys);
  layer.values.scatter_(2, places, values);
  // A new token sees the places up to its own.
  const Tensor seen =
      at::arange(capacity, cache.cached().options()) <= positions.unsqueeze(-1);  // [B, N, S]
  const Tensor mixed = at::scaled_dot_product_attention(
      queries, kernels::for_all_queries(layer.keys, heads_),
      kernels::for_all_queries(layer.values, heads_), seen.unsqueeze(1));
  return mixed.transpose(1, 2).reshape({qkv.size(0), -1});
}

Tensor Attention::forward(const Tensor& x, const KeyValueCache& cache, const LayerCache& layer,
                          const RopeTables& rope) const {
  const int64_t rows = cache.size();
  const Tensor qkv = kernels::turned_heads(project(x, nullptr), rows, heads_, turning(rope));
  Tensor mixed;
  if (x.size(0) == rows && kernels::suits_cached_attention(qkv)) {
    mixed = kernels::cached_attention(qkv, heads_,
                                      {layer.keys, layer.values, cache.row(), cache.cached()});
  } else if (cache.is_empty()) {
    mixed = mix_first(qkv, rows, layer);
  } else {
    mixed = mix_more(qkv, cache, layer);
  }
  return sum_of_shard_linears({shards_, label()}, mixed, out_, out_bias_);
}

}  // namespace ballast::model
