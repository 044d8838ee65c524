// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/shard_layers.h"

#include "ballast/comm/collectives.h"
#include "ballast/comm/purpose.h"
#include "ballast/kernels/gemm.h"

namespace ballast::model {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// A call as autograd keeps it for the way back.
void save(const ShardCall& call, AutogradContext* context) {
  comm::Purpose{&call.shards, call.label}.save(context);
  context->saved_data["watch"] = reinterpret_cast<int64_t>(call.watch);
}
ShardCall saved_call(AutogradContext* context) {
  const comm::Purpose purpose = comm::Purpose::saved(context);
  return {*purpose.group, purpose.label,
          reinterpret_cast<step::StepWatch*>(context->saved_data["watch"].toInt())};
}

// Begins the sum of the shards' parts.
comm::Pending begin_sum(const ShardCall& call, const Tensor& parts) {
  return call.shards.begin_all_reduce(parts, comm::Reduction::kSum, call.label);
}

void wait_for(comm::Pending& sum, step::StepWatch* watch) {
  if (watch == nullptr) return sum.wait();
  const step::StepPart before = watch->part();
  watch->switch_to(step::StepPart::kCommunication);
  sum.wait();
  watch->switch_to(before);
}

Tensor sum_of_all(const ShardCall& call, const Tensor& part) {
  return step::communicate(part, call.watch, [&](const Tensor& given) {
    return comm::sum_over_shards(call.shards, given, call.label);
  });
}

Tensor with_bias(const Tensor& x, const kernels::Parameter& bias) {
  return bias.value.defined() ? kernels::add_bias(x, bias) : x;
}

struct ShardLinear : torch::autograd::Function<ShardLinear> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const kernels::Parameter& weight,
                        const kernels::Parameter& bias, const ShardCall& call) {
    save(call, context);
    context->save_for_backward({x, weight.value});
    context->saved_data["sums"] = kernels::gradient_sums({weight, bias});
    return kernels::multiply_transposed(x, weight.value, bias.value);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const Tensor dx = kernels::multiply_weight(dy[0], saved[1]).contiguous();
    const ShardCall call = saved_call(context);
    comm::Pending sum = begin_sum(call, dx);
    kernels::add_weight_gradients(sums[0], sums[1], dy[0], saved[0]);
    wait_for(sum, call.watch);
    return {dx, {}, {}, {}};
  }
};

// Gives this shard's part of the sum, without the last bias.
struct ShardFeedForward : torch::autograd::Function<ShardFeedForward> {
  static Tensor forward(AutogradContext* context, const Tensor& x,
                        const kernels::FeedForwardWeights& w, const ShardCall& call) {
    const kernels::Inner inner =
        kernels::activated_product(x, w.up.value, w.up_bias.value, w.activation);
    save(call, context);
    context->save_for_backward({x, inner.before, inner.active, w.up.value, w.down.value});
    context->saved_data["sums"] = kernels::gradient_sums({w.up, w.up_bias, w.down});
    context->saved_data["activation"] = static_cast<int64_t>(w.activation);
    return kernels::multiply_transposed(inner.active, w.down.value, {});
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const auto activation =
        static_cast<kernels::Activation>(context->saved_data["activation"].toInt());
    const Tensor &x = saved[0], &up = saved[3], &down = saved[4];
    const kernels::Inner inner{saved[1], saved[2]};  // [T, F / M]
    const Tensor dinner = kernels::inner_gradient(dy[0], down, inner, activation, sums[1]);
    const Tensor dx = kernels::multiply_weight(dinner, up).contiguous();
    const ShardCall call = saved_call(context);
    comm::Pending sum = begin_sum(call, dx);
    kernels::add_weight_gradients(sums[2], {}, dy[0], inner.active);
    kernels::add_weight_gradients(sums[0], {}, dinner, x);
    wait_for(sum, call.watch);
    return {dx, {}, {}};
  }
};

}  // namespace

Tensor shard_linear(const ShardCall& call, const Tensor& x, const kernels::Parameter& weight,
                    const kernels::Parameter& bias) {
  if (call.shards.size() == 1) return kernels::linear(x, weight, bias);
  return ShardLinear::apply(x, weight, bias, call);
}

Tensor sum_of_shard_linears(const ShardCall& call, const Tensor& y,
                            const kernels::Parameter& weight, const kernels::Parameter& bias) {
  if (call.shards.size() == 1) return kernels::linear(y, weight, bias);
  return with_bias(sum_of_all(call, kernels::linear(y, weight, {})), bias);
}

Tensor sum_of_shard_feed_forwards(const ShardCall& call, const Tensor& x,
                                  const kernels::FeedForwardWeights& weights) {
  if (call.shards.size() == 1) return kernels::feed_forward(x, weights);
  const Tensor part = ShardFeedForward::apply(x, weights, call);
  return with_bias(sum_of_all(call, part), weights.down_bias);
}

}  // namespace ballast::model
