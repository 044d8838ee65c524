// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/kernels/parameter.h"
#include "ballast/model/key_value_cache.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/step/step_watch.h"

namespace ballast::model {

// Multi-head causal self-attention: tokens look at themselves and at what came before. The heads
// are divided among the shards of a replica; x and the results are alike on all of them.
class Attention {
 public:
  // Of block number `block`. REQUIRES: the shards divide the heads, and outlive this.
  Attention(const config::ModelConfig& config, int64_t block, parameters::ParameterTable& table,
            comm::Communicator& shards);

  // x [B * S, D] -> [B * S, D]
  at::Tensor forward(const at::Tensor& x, int64_t rows, step::StepWatch* watch = nullptr) const;
  // New tokens x [B * N, D] attend to the cache and to themselves; the cache takes them in.
  at::Tensor forward(const at::Tensor& x, LayerCache& cache) const;

 private:
  comm::Label label() const { return {"attention", static_cast<int>(block_)}; }

  const int64_t block_, heads_;  // heads here
  comm::Communicator& shards_;
  const kernels::Parameter &qkv_, &qkv_bias_, &out_, &out_bias_;
};

}  // namespace ballast::model
