// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/sum.h>

#include "ballast/experts/expert_mlp_paths.h"
#include "ballast/experts/expert_rows.h"
#include "ballast/kernels/bias_sums.h"
#include "ballast/kernels/gemm.h"
#include "ballast/kernels/layer_norm_paths.h"

namespace ballast::experts {
namespace {

using at::Tensor;

enum Kept { kCentred, kMean, kInverse, kPerGroup };  // then, for each group:
enum KeptOfGroup { kNormed, kActive, kOfGroup };

Tensor transposed(const Tensor& x) { return x.transpose(1, 2); }

void add_column_sums(const ExpertGroup& group, const Tensor& stack, const Tensor& terms) {
  if (stack.defined()) kernels::add_rows(group.slices_of(stack), terms);
}

// += y^T x of each expert, in place: the library takes experts that lie apart.
void add_weight_gradient(const ExpertGroup& group, const Tensor& stack, const Tensor& y,
                         const Tensor& x) {
  if (stack.defined()) kernels::add_outer_products(group.slices_of(stack), y, x);
}

}  // namespace

Tensor expert_feed_forward_batched(const Tensor& x, at::IntArrayRef rows_of_expert,
                                   const ExpertStacks& w, KeptForBackward& kept) {
  // Without weights the norm is one operation for all experts, with statistics in fp32.
  const auto [centred, mean, inverse] =
      at::native_layer_norm(x, {x.size(1)}, {}, {}, kernels::kNormEpsilon);
  kept.tensors = {centred, mean, inverse};
  const Tensor y = at::empty_like(x);
  for (const ExpertGroup& group : expert_groups(rows_of_expert, x.size(0))) {
    const auto bias = [&](const Tensor& stack) { return group.slices_of(stack).unsqueeze(1); };
    const Tensor normed = at::addcmul(bias(w.norm_bias), group.rows_of(centred), bias(w.norm));
    const Tensor active = kernels::multiply_transposed(
        normed, group.slices_of(w.up), group.slices_of(w.up_bias), kernels::Activation::kRelu);
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
        kernels::multiply_weight_masked(dy_here, group.slices_of(w.down), active, bias_sum);
    add_weight_gradient(group, sums.up, dactive, normed);
    const Tensor dnormed = kernels::multiply_weight(dactive, group.slices_of(w.up));
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

namespace {

at::ScalarType gate_type(const Tensor& h) {
  return h.scalar_type() == at::kBFloat16 ? at::kFloat : h.scalar_type();
}

}  // namespace

GatedRows gated_residual_batched(const Tensor& h, const Tensor& stack,
                                 at::IntArrayRef rows_of_expert, const Tensor& embeddings) {
  const auto type = gate_type(h);
  GatedRows result{at::empty_like(h), at::empty({h.size(0), 1}, h.options().dtype(type))};
  for (const ExpertGroup& group : expert_groups(rows_of_expert, h.size(0))) {
    const Tensor x = group.rows_of(h).to(type), gate = group.rows_of(result.gates);
    const Tensor w = group.slices_of(embeddings).to(type).unsqueeze(1);  // [B, 1, D]
    gate.copy_((x * w).sum({2}, true).sigmoid_());
    group.rows_of(result.y).copy_(at::lerp(x, group.rows_of(stack).to(type), gate));
  }
  return result;
}

GateGradients gated_residual_backward_batched(const GateInputs& in, const Tensor& dy) {
  const auto type = gate_type(in.h);
  GateGradients result{at::empty_like(in.h), at::empty_like(in.h)};
  for (const ExpertGroup& group : expert_groups(in.rows_of_expert, in.h.size(0))) {
    const Tensor x = group.rows_of(in.h).to(type), gate = group.rows_of(in.gates),
                 dy_here = group.rows_of(dy).to(type);
    const Tensor w = group.slices_of(in.embeddings).to(type).unsqueeze(1);  // [B, 1, D]
    const Tensor dscore = ((group.rows_of(in.stack).to(type) - x) * dy_here)
                              .sum({2}, true)
                              .mul_(gate)
                              .mul_(1 - gate);  // [B, C, 1]
    group.rows_of(result.dstack).copy_(gate * dy_here);
    group.rows_of(result.dh).copy_(((1 - gate) * dy_here).addcmul_(dscore, w));
    if (in.embedding_sums.defined()) {
      group.slices_of(in.embedding_sums).add_((x * dscore).sum({1}));
    }
  }
  return result;
}

}  // namespace ballast::experts
