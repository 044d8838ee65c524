// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/shard_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <array>

#include "ballast/comm/collectives.h"
#include "ballast/comm/purpose.h"
#include "ballast/kernels/gemm.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/widened.h"

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
    context->saved_data["unwritten"] = kernels::unwritten_sums({weight});
    return kernels::multiply_transposed(x, weight.value, bias.value);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const Tensor dx = kernels::multiply_weight(dy[0], saved[1]).contiguous();
    const ShardCall call = saved_call(context);
    comm::Pending sum = begin_sum(call, dx);
    const auto unwritten = context->saved_data["unwritten"].toTensorList();
    kernels::add_weight_gradients({sums[0], unwritten[0]}, sums[1], dy[0], saved[0]);
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
    context->saved_data["unwritten"] = kernels::unwritten_sums({w.up, w.down});
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
    const auto unwritten = context->saved_data["unwritten"].toTensorList();
    kernels::add_weight_gradients({sums[2], unwritten[1]}, {}, dy[0], inner.active);
    kernels::add_weight_gradients({sums[0], unwritten[0]}, {}, dinner, x);
    wait_for(sum, call.watch);
    return {dx, {}, {}};
  }
};

// The parts of a row that are normed: queries, then keys.
struct NormedPart {
  NormedPart(const Tensor& qkv, int64_t first, const Tensor& of_weight)
      : x(kernels::widened(qkv.narrow(1, first, of_weight.size(0)))),
        weight(kernels::widened(of_weight)) {}
  Tensor x, weight;
};
std::array<NormedPart, 2> normed_parts(const Tensor& rows, const Tensor& queries,
                                       const Tensor& keys) {
  return {NormedPart(rows, 0, queries), NormedPart(rows, queries.size(0), keys)};
}

Tensor with_values_of(const Tensor& qkv, const Tensor& queries, const Tensor& keys) {
  const int64_t normed = queries.size(1) + keys.size(1);
  const auto type = qkv.scalar_type();
  return at::cat({queries.to(type), keys.to(type), qkv.narrow(1, normed, keys.size(1))}, 1);
}

struct ShardWidthNorms : torch::autograd::Function<ShardWidthNorms> {
  static Tensor forward(AutogradContext* context, const Tensor& qkv, const WidthNorms& norms,
                        const ShardCall& call) {
    const auto parts = normed_parts(qkv, norms.queries.value, norms.keys.value);
    const Tensor squares =
        at::stack({parts[0].x.square().sum(1), parts[1].x.square().sum(1)});  // [2, T]
    comm::Pending sum = begin_sum(call, squares);
    wait_for(sum, call.watch);
    std::array<Tensor, 2> inverse, normed;
    for (size_t i = 0; i < 2; ++i) {
      const int64_t width = parts[i].x.size(1) * call.shards.size();
      inverse[i] = (squares[static_cast<int64_t>(i)] / width).add_(norms.epsilon).rsqrt_();
      inverse[i].unsqueeze_(1);  // [T, 1]
      normed[i] = (parts[i].x * inverse[i]).mul_(parts[i].weight);
    }
    save(call, context);
    context->save_for_backward(
        {qkv, inverse[0], inverse[1], norms.queries.value, norms.keys.value});
    context->saved_data["sums"] = kernels::gradient_sums({norms.queries, norms.keys});
    return with_values_of(qkv, normed[0], normed[1]);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const ShardCall call = saved_call(context);
    const auto parts = normed_parts(saved[0], saved[3], saved[4]);
    const auto given = normed_parts(dy[0], saved[3], saved[4]);
    std::array<Tensor, 2> unit, scaled, dx;
    for (size_t i = 0; i < 2; ++i) {
      unit[i] = parts[i].x * saved[1 + i];
      scaled[i] = given[i].x * parts[i].weight;
    }
    const Tensor along =
        at::stack({(scaled[0] * unit[0]).sum(1), (scaled[1] * unit[1]).sum(1)});  // [2, T]
    comm::Pending sum = begin_sum(call, along);
    for (size_t i = 0; i < 2; ++i) {
      const Tensor& into = sums.get(i);
      if (into.defined()) into.add_((given[i].x * unit[i]).sum(0));
    }
    wait_for(sum, call.watch);
    for (size_t i = 0; i < 2; ++i) {
      const int64_t width = parts[i].x.size(1) * call.shards.size();
      const Tensor mean = (along[static_cast<int64_t>(i)] / width).unsqueeze(1);  // [T, 1]
      dx[i] = (scaled[i] - unit[i] * mean).mul_(saved[1 + i]);
    }
    return {with_values_of(dy[0], dx[0], dx[1]), {}, {}};
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

Tensor norm_over_shards(const ShardCall& call, const Tensor& qkv, const WidthNorms& norms) {
  if (call.shards.size() > 1) return ShardWidthNorms::apply(qkv, norms, call);
  const kernels::NormForm form{kernels::NormKind::kRms, norms.epsilon};
  const int64_t queries = norms.queries.value.size(0), keys = norms.keys.value.size(0);
  const auto normed = [&](int64_t first, const kernels::Parameter& weight) {
    const Tensor part = qkv.narrow(1, first, weight.value.size(0)).contiguous();
    return kernels::layer_norm(part, weight, kernels::no_parameter(), form);
  };
  return at::cat(
      {normed(0, norms.queries), normed(queries, norms.keys), qkv.narrow(1, queries + keys, keys)},
      1);
}

}  // namespace ballast::model
