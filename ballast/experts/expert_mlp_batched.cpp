// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sum.h>

#include "ballast/experts/expert_mlp_paths.h"
#include "ballast/experts/expert_rows.h"
#include "ballast/kernels/bias_sums.h"
#include "ballast/kernels/gemm.h"
#include "ballast/kernels/layer_norm_paths.h"
#include "ballast/kernels/linear.h"

namespace ballast::experts {
namespace {

using at::Tensor;

enum Kept { kUnit, kMean, kInverse, kPerGroup };  // undefined without norms; then, for each group:
enum KeptOfGroup { kNormed, kBefore, kActive, kOfGroup };

Tensor transposed(const Tensor& x) { return x.transpose(1, 2); }

void add_column_sums(const ExpertGroup& group, const Tensor& stack, const Tensor& terms) {
  if (stack.defined()) kernels::add_rows(group.slices_of(stack), terms);
}

// += y^T x of each expert, in place: the library takes experts that lie apart.
void add_weight_gradient(const ExpertGroup& group, const Tensor& stack, const Tensor& y,
                         const Tensor& x) {
  if (stack.defined()) kernels::add_outer_products(group.slices_of(stack), y, x);
}

Tensor slices_or_none(const ExpertGroup& group, const Tensor& stack) {
  return stack.defined() ? group.slices_of(stack) : Tensor();
}

// The norm without weights, which is one operation for all experts.
void norm_all(const Tensor& x, const kernels::NormForm& form, KeptForBackward& kept) {
  const Tensor ones = at::ones({x.size(1)}, x.options());
  const auto [none, unit, mean, inverse] = kernels::plain_norm_rows(
      x, std::nullopt, ones, std::nullopt, form.takes_mean(), form.epsilon);
  kept.tensors = {unit, mean, inverse};
}

// A group's rows as its experts' norms leave them.
Tensor normed_rows(const ExpertGroup& group, const Tensor& unit, const ExpertStacks& w) {
  const auto of = [&](const Tensor& stack) { return group.slices_of(stack).unsqueeze(1); };
  return w.norm_bias.defined() ? at::addcmul(of(w.norm_bias), group.rows_of(unit), of(w.norm))
                               : group.rows_of(unit) * of(w.norm);
}

}  // namespace

Tensor expert_feed_forward_batched(const Tensor& x, at::IntArrayRef rows_of_expert,
                                   const ExpertStacks& w, KeptForBackward& kept) {
  kept.tensors.resize(kPerGroup);
  if (w.form.norms) norm_all(x, w.form.norm, kept);
  const Tensor y = at::empty_like(x);
  for (const ExpertGroup& group : expert_groups(rows_of_expert, x.size(0))) {
    const Tensor normed =
        w.form.norms ? normed_rows(group, kept.tensors[kUnit], w) : group.rows_of(x);
    const kernels::Inner inner = kernels::activated_product(
        normed, group.slices_of(w.up), slices_or_none(group, w.up_bias), w.form.activation);
    Tensor y_here = group.rows_of(y);
    const Tensor down = transposed(group.slices_of(w.down));
    if (!w.form.norms) {
      at::bmm_out(y_here, inner.active, down);
      if (w.down_bias.defined()) y_here.add_(group.slices_of(w.down_bias).unsqueeze(1));
    } else if (w.down_bias.defined()) {
      at::add_out(y_here, group.rows_of(x), group.slices_of(w.down_bias).unsqueeze(1));
      y_here.baddbmm_(inner.active, down);
    } else {
      y_here.copy_(group.rows_of(x)).baddbmm_(inner.active, down);
    }
    kept.tensors.insert(kept.tensors.end(), {normed, inner.before, inner.active});
  }
  return y;
}

Tensor expert_feed_forward_backward_batched(const Tensor& dy, const Tensor& x,
                                            at::IntArrayRef rows_of_expert, const ExpertStacks& w,
                                            const ExpertStacks& sums, const KeptForBackward& kept) {
  Tensor dunit = at::empty_like(x);  // without norms: the gradient by x
  size_t kept_of_group = kPerGroup;
  for (const ExpertGroup& group : expert_groups(rows_of_expert, x.size(0))) {
    const Tensor& normed = kept.tensors[kept_of_group + kNormed];
    const kernels::Inner inner{kept.tensors[kept_of_group + kBefore],
                               kept.tensors[kept_of_group + kActive]};
    kept_of_group += kOfGroup;
    const Tensor dy_here = group.rows_of(dy);
    add_weight_gradient(group, sums.down, dy_here, inner.active);
    add_column_sums(group, sums.down_bias, dy_here);
    const Tensor dinner =
        kernels::inner_gradient(dy_here, group.slices_of(w.down), inner, w.form.activation,
                                slices_or_none(group, sums.up_bias));
    add_weight_gradient(group, sums.up, dinner, normed);
    Tensor dunit_here = group.rows_of(dunit);
    if (!w.form.norms) {
      kernels::multiply_weight_out(dunit_here, dinner, group.slices_of(w.up));
      continue;
    }
    const Tensor dnormed = kernels::multiply_weight(dinner, group.slices_of(w.up));
    add_column_sums(group, sums.norm_bias, dnormed);
    if (sums.norm.defined())
      add_column_sums(group, sums.norm, at::mul(dnormed, group.rows_of(kept.tensors[kUnit])));
    at::mul_out(dunit_here, dnormed, group.slices_of(w.norm).unsqueeze(1));
  }
  if (!w.form.norms) return dunit;
  return kernels::plain_norm_rows_backward(dunit, std::nullopt, x, kept.tensors[kMean],
                                           kept.tensors[kInverse],
                                           at::ones({x.size(1)}, x.options()), std::nullopt,
                                           std::nullopt, w.form.norm.takes_mean())
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
