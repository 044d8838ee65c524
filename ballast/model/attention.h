// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/kernels/parameter.h"
#include "ballast/kernels/turned_heads.h"
#include "ballast/model/key_value_cache.h"
#include "ballast/model/residual_stream.h"
#include "ballast/model/rope.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/step/step_watch.h"

namespace ballast::model {

// The sequences that the rows of a pass belong to.
struct Sequences {
  int64_t rows = 1;           // B
  RopeTables rope = {};       // of the S positions; undefined: positions are learned
  at::Tensor documents = {};  // [B, S] int64, the same for tokens that see each other; or undefined
};

// Multi-head causal self-attention: tokens look at themselves and at what came before. The heads
// are divided among the shards of a replica; x and the results are alike on all of them.
class Attention {
 public:
  // Of block number `block`. REQUIRES: the shards divide the heads, and outlive this.
  Attention(const config::ModelConfig& config, int64_t block, parameters::ParameterTable& table,
            comm::Communicator& shards);

  // x [B * S, D] -> [B * S, D]
  at::Tensor forward(const at::Tensor& x, const Sequences& of, step::StepWatch* watch = nullptr,
                     BiasGradient of_out_bias = BiasGradient::kHere) const;
  const kernels::Parameter& out_bias() const { return out_bias_; }
  // New tokens x [B * N, D] attend to the cache and to themselves; the cache's layer takes them in.
  // rope: of each of the B * N tokens' positions.
  at::Tensor forward(const at::Tensor& x, const KeyValueCache& cache, const LayerCache& layer,
                     const RopeTables& rope) const;

 private:
  comm::Label label() const { return {"attention", static_cast<int>(block_)}; }
  // Queries, keys and values of x, normed where the norm is over their whole width.
  at::Tensor project(const at::Tensor& x, step::StepWatch* watch) const;
  kernels::Turning turning(const RopeTables& rope) const;
  // Both put turned qkv [B * N, columns] into the cache and mix the values.  -> [B * N, queries W]
  at::Tensor mix_first(const at::Tensor& qkv, int64_t rows, const LayerCache& layer) const;
  at::Tensor mix_more(const at::Tensor& qkv, const KeyValueCache& cache,
                      const LayerCache& layer) const;

  const int64_t block_;
  const config::QueryKeyNorm norm_;
  const double epsilon_;
  const kernels::Heads heads_;  // here
  comm::Communicator& shards_;
  const kernels::Parameter &qkv_, &qkv_bias_, &query_norm_, &key_norm_, &out_, &out_bias_;
};

}  // namespace ballast::model
