// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/comm/communicator.h"
#include "ballast/kernels/linear.h"
#include "ballast/kernels/parameter.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/step/step_watch.h"

namespace ballast::model {

// How a parameter of such a layer is divided: along dimension `dim`.
inline parameters::Division division(const comm::Communicator& shards, int64_t dim) {
  return {.dim = dim, .shard = shards.rank(), .shards = shards.size()};
}

// Who takes part in a layer's exchanges, what they are for, and who is told of the waiting.
struct ShardCall {
  comm::Communicator& shards;
  comm::Label label;
  step::StepWatch* watch = nullptr;
};

// Layers whose weights are divided among the shards of a replica. x [T, D] is alike on all shards,
// and so is the gradient by it, which is summed over them while those of the weights are computed.
// With one shard they are the kernels of the same name. Collective among the shards.

// x W^T + b by this shard's rows of the weight.  weight [O / M, D], bias [O / M] -> [T, O / M]
at::Tensor shard_linear(const ShardCall& call, const at::Tensor& x,
                        const kernels::Parameter& weight, const kernels::Parameter& bias);

// y W^T + b by this shard's columns of the weight, summed over the shards: alike on all.
// y [T, I / M], weight [D, I / M], bias [D], which all have -> [T, D]
at::Tensor sum_of_shard_linears(const ShardCall& call, const at::Tensor& y,
                                const kernels::Parameter& weight, const kernels::Parameter& bias);

// A feed-forward by this shard's F / M of the inner activations, summed over the shards: alike on
// all. The last bias is whole.  -> [T, D]
at::Tensor sum_of_shard_feed_forwards(const ShardCall& call, const at::Tensor& x,
                                      const kernels::FeedForwardWeights& weights);

// RMSNorms of queries and of keys, each over its whole width, of which a shard has a part.
struct WidthNorms {
  kernels::Parameter queries, keys;  // [Q / M], [K / M]
  double epsilon = 1e-6;
};
// Queries, keys and as many values lie side by side in a row. The shards tell each other two
// numbers a row, forward and backward.  qkv [T, (Q + 2 K) / M] -> the same, with values as they
// were
at::Tensor norm_over_shards(const ShardCall& call, const at::Tensor& qkv, const WidthNorms& norms);

}  // namespace ballast::model
