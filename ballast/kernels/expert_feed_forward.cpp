// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/expert_feed_forward.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ballast/kernels/expert_rows.h"
#include "ballast/kernels/gemm.h"

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr double kEpsilon = 1e-5;

enum Weight { kNorm, kNormBias, kUp, kUpBias, kDown, kDownBias, kWeights };
enum Saved { kX = kWeights, kPerExpert };  // after the weights
enum SavedOfExpert { kNormed, kMean, kInverse, kActive, kSavedOfExpert };

struct ExpertFeedForwardFunction : torch::autograd::Function<ExpertFeedForwardFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, at::IntArrayRef rows_of_expert,
                        const ExpertWeights& w) {
    tensor_list saved{w.norm.value, w.norm_bias.value, w.up.value, w.up_bias.value,
                      w.down.value, w.down_bias.value, x};
    const Tensor y = at::empty_like(x);
    int64_t row = 0;
    for (int64_t e = 0; e < static_cast<int64_t>(rows_of_expert.size()); ++e) {
      if (rows_of_expert[e] == 0) continue;
      const Tensor x_here = x.narrow(0, row, rows_of_expert[e]);
      const auto [normed, mean, inverse] = at::native_layer_norm(
          x_here, {x.size(1)}, w.norm.value[e], w.norm_bias.value[e], kEpsilon);
      const Tensor active =
          multiply_transposed(normed, w.up.value[e], w.up_bias.value[e], Activation::kRelu);
      Tensor y_here = y.narrow(0, row, rows_of_expert[e]);
      at::add_out(y_here, x_here,
                  multiply_transposed(active, w.down.value[e], w.down_bias.value[e]));
      saved.insert(saved.end(), {normed, mean, inverse, active});
      row += rows_of_expert[e];
    }
    context->save_for_backward(saved);
    context->saved_data["sums"] =
        gradient_sums({w.norm, w.norm_bias, w.up, w.up_bias, w.down, w.down_bias});
    context->saved_data["rows"] = rows_of_expert.vec();
    return y;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto rows_of_expert = context->saved_data["rows"].toIntVector();
    const auto sums = context->saved_data["sums"].toTensorVector();
    const auto sum = [&](Weight weight, int64_t e) {
      return sums[weight].defined() ? sums[weight][e] : Tensor();
    };
    const Tensor &x = saved[kX], dy = gradients[0].contiguous();
    const Tensor dx = at::empty_like(x);
    int64_t row = 0, at = kPerExpert;
    for (int64_t e = 0; e < static_cast<int64_t>(rows_of_expert.size()); ++e) {
      const int64_t rows = rows_of_expert[e];
      if (rows == 0) continue;
      const Tensor x_here = x.narrow(0, row, rows), dy_here = dy.narrow(0, row, rows);
      const Tensor &normed = saved[at + kNormed], &active = saved[at + kActive];
      if (sum(kDown, e).defined()) add_outer_products(sum(kDown, e), dy_here, active);
      if (sum(kDownBias, e).defined()) add_rows(sum(kDownBias, e), dy_here);
      Tensor dactive = multiply_weight(dy_here, saved[kDown][e]);
      at::threshold_backward_out(dactive, dactive, active, 0);
      if (sum(kUp, e).defined()) add_outer_products(sum(kUp, e), dactive, normed);
      if (sum(kUpBias, e).defined()) add_rows(sum(kUpBias, e), dactive);
      const auto [dx_norm, dnorm, dnorm_bias] = at::native_layer_norm_backward(
          multiply_weight(dactive, saved[kUp][e]), x_here, {x.size(1)}, saved[at + kMean],
          saved[at + kInverse], saved[kNorm][e], saved[kNormBias][e], {true, true, true});
      if (sum(kNorm, e).defined()) sum(kNorm, e).add_(dnorm);
      if (sum(kNormBias, e).defined()) sum(kNormBias, e).add_(dnorm_bias);
      Tensor dx_here = dx.narrow(0, row, rows);
      at::add_out(dx_here, dy_here, dx_norm);
      row += rows;
      at += kSavedOfExpert;
    }
    return {dx, {}, {}};
  }
};

void check_shapes(const Tensor& x, at::IntArrayRef rows_of_expert, const ExpertWeights& w) {
  const Tensor& up = w.up.value;
  TORCH_CHECK(x.dim() == 2 && up.dim() == 3 && x.size(1) == up.size(2),
              "expert_feed_forward: want x [N, D] and up [E, F, D], got ", x.sizes(), " and ",
              up.sizes());
  const int64_t experts = up.size(0), inner = up.size(1), width = up.size(2);
  const auto check = [](const char* what, const Tensor& weight, at::IntArrayRef shape) {
    TORCH_CHECK(weight.sizes() == shape, "expert_feed_forward: want ", what, " ", shape, ", got ",
                weight.sizes());
  };
  check("norm", w.norm.value, {experts, width});
  check("norm_bias", w.norm_bias.value, {experts, width});
  check("up_bias", w.up_bias.value, {experts, inner});
  check("down", w.down.value, {experts, width, inner});
  check("down_bias", w.down_bias.value, {experts, width});
  TORCH_CHECK(experts == static_cast<int64_t>(rows_of_expert.size()),
              "expert_feed_forward: rows of ", rows_of_expert.size(), " experts, but weights of ",
              experts);
  expert_groups(rows_of_expert, x.size(0));
}

}  // namespace

Tensor expert_feed_forward(const Tensor& x, at::IntArrayRef rows_of_expert,
                           const ExpertWeights& weights) {
  check_shapes(x, rows_of_expert, weights);
  return ExpertFeedForwardFunction::apply(x.contiguous(), rows_of_expert, weights);
}

}  // namespace ballast
