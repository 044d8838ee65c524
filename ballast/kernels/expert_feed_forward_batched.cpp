// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "ballast/kernels/bias_sums.h"
#include "ballast/kernels/expert_feed_forward_paths.h"
#include "ballast/kernels/expert_rows.h"
#include "ballast/kernels/gemm.h"

namespace ballast {
namespace {

using at::Tensor;

constexpr double kEpsilon = 1e-5;

enum Kept { kCentred, kMean, kInverse, kPerGroup };  // then, for each group:
enum KeptOfGroup { kNormed, kActive, kOfGroup };

Tensor transposed(const Tensor& x) { return x.transpose(1, 2); }

void add_column_sums(const ExpertGroup& group, const Tensor& stack, const Tensor& terms) {
  if (stack.defined()) add_rows(group.slices_of(stack), terms);
}

// += y^T x of each expert, in place: the library takes experts that lie apart.
void add_weight_gradient(const ExpertGroup& group, const Tensor& stack, const Tensor& y,
                         const Tensor& x) {
  if (stack.defined()) add_outer_products(group.slices_of(stack), y, x);
}

}  // namespace

Tensor expert_feed_forward_batched(const Tensor& x, at::IntArrayRef rows_of_expert,
                                   const ExpertStacks& w, KeptForBackward& kept) {
  // Without weights the norm is one operation for all experts, with statistics in fp32.
  const auto [centred, mean, inverse] = at::native_layer_norm(x, {x.size(1)}, {}, {}, kEpsilon);
  kept.tensors = {centred, mean, inverse};
  const Tensor y = at::empty_like(x);
  for (const ExpertGroup& group : expert_groups(rows_of_expert, x.size(0))) {
    const auto bias = [&](const Tensor& stack) { return group.slices_of(stack).unsqueeze(1); };
    const Tensor normed = at::addcmul(bias(w.norm_bias), group.rows_of(centred), bias(w.norm));
    const Tensor active = multiply_transposed(normed, group.slices_of(w.up),
                                              group.slices_of(w.up_bias), Activation::kRelu);
    Tensor y_here = group.rows_of(y);
    at::add_out(y_here, group.rows_of(x), bias(w.down_bias));
    y_here.baddbmm_(active, transposed(group.slices_of(w.down)));
    kept.tensors.insert(kept.tensors.end(), {normed, active});
  }
  return y;
}

Tensor expert_feed_forward_backward_batched(const Tensor& dy, const Tensor& x,
                                            at::IntArrayRef rows_of_expert, const ExpertStacks& w,
                                            const ExpertStacks& sums, const KeptForBackward& kept) {
  Tensor dcentred = at::empty_like(x);
  size_t kept_of_group = kPerGroup;
  for (const ExpertGroup& group : expert_groups(rows_of_expert, x.size(0))) {
    const Tensor &normed = kept.tensors[kept_of_group + kNormed],
                 &active = kept.tensors[kept_of_group + kActive];
    kept_of_group += kOfGroup;
    const Tensor dy_here = group.rows_of(dy);
    add_weight_gradient(group, sums.down, dy_here, active);
    add_column_sums(group, sums.down_bias, dy_here);
    const Tensor bias_sum = sums.up_bias.defined() ? group.slices_of(sums.up_bias) : Tensor();
    const Tensor dactive =
        multiply_weight_masked(dy_here, group.slices_of(w.down), active, bias_sum);
    add_weight_gradient(group, sums.up, dactive, normed);
    const Tensor dnormed = multiply_weight(dactive, group.slices_of(w.up));
    add_column_sums(group, sums.norm_bias, dnormed);
    if (sums.norm.defined()) {
      add_column_sums(group, sums.norm, at::mul(dnormed, group.rows_of(kept.tensors[kCentred])));
    }
    Tensor dcentred_here = group.rows_of(dcentred);
    at::mul_out(dcentred_here, dnormed, group.slices_of(w.norm).unsqueeze(1));
  }
  return std::get<0>(at::native_layer_norm_backward(dcentred, x, {x.size(1)}, kept.tensors[kMean],
                                                    kept.tensors[kInverse], {}, {},
                                                    {true, false, false}))
      .add_(dy);
}

}  // namespace ballast
