// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/shard_layers.h"

#include <ATen/ops/threshold_backward.h>

#include "ballast/comm/collectives.h"
#include "ballast/comm/purpose.h"
#include "ballast/kernels/gemm.h"

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Of parts by the shards, to wait for.
Pending begin_sum(const Purpose& shards, const Tensor& parts) {
  return shards.group->begin_all_reduce(parts, Reduction::kSum, shards.label);
}

struct ShardLinear : torch::autograd::Function<ShardLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Parameter& weight,
                        const Parameter& bias, const Purpose& shards) {
    shards.save(context);
    context->save_for_backward({x, weight.value});
    context->saved_data["sums"] = gradient_sums({weight, bias});
    return multiply_transposed(x, weight.value, bias.value);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const Tensor dx = multiply_weight(dy[0], saved[1]).contiguous();
    Pending sum = begin_sum(Purpose::saved(context), dx);
    add_weight_gradients(sums[0], sums[1], dy[0], saved[0]);
    sum.wait();
    return {dx, {}, {}, {}};
  }
};

// Gives this shard's part of the sum, without the last bias.
struct ShardFeedForward : torch::autograd::Function<ShardFeedForward> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const FeedForwardWeights& w,
                        const Purpose& shards) {
    const Tensor active =
        multiply_transposed(x, w.up.value, w.up_bias.value, Activation::kRelu);  // [T, F / M]
    shards.save(context);
    context->save_for_backward({x, active, w.up.value, w.down.value});
    context->saved_data["sums"] = gradient_sums({w.up, w.up_bias, w.down});
    return multiply_transposed(active, w.down.value, {});
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const Tensor &x = saved[0], &active = saved[1], &up = saved[2], &down = saved[3];
    Tensor dactive = multiply_weight(dy[0], down);  // [T, F / M]
    at::threshold_backward_out(dactive, dactive, active, 0);
    const Tensor dx = multiply_weight(dactive, up).contiguous();
    Pending sum = begin_sum(Purpose::saved(context), dx);
    add_weight_gradients(sums[2], {}, dy[0], active);
    add_weight_gradients(sums[0], sums[1], dactive, x);
    sum.wait();
    return {dx, {}, {}};
  }
};

}  // namespace

Tensor shard_linear(Communicator& shards, const Tensor& x, const Parameter& weight,
                    const Parameter& bias, Label label) {
  if (shards.size() == 1) return linear(x, weight, bias);
  return ShardLinear::apply(x, weight, bias, Purpose{&shards, label});
}

Tensor sum_of_shard_linears(Communicator& shards, const Tensor& y, const Parameter& weight,
                            const Parameter& bias, Label label) {
  if (shards.size() == 1) return linear(y, weight, bias);
  return add_bias(sum_over_shards(shards, linear(y, weight, {}), label), bias);
}

Tensor sum_of_shard_feed_forwards(Communicator& shards, const Tensor& x,
                                  const FeedForwardWeights& weights, Label label) {
  if (shards.size() == 1) return feed_forward(x, weights);
  const Tensor part = ShardFeedForward::apply(x, weights, Purpose{&shards, label});
  return add_bias(sum_over_shards(shards, part, label), weights.down_bias);
}

}  // namespace ballast
