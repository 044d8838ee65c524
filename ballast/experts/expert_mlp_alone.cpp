// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>

#include "ballast/experts/expert_mlp_paths.h"
#include "ballast/experts/expert_rows.h"
#include "ballast/kernels/gemm.h"
#include "ballast/kernels/linear.h"
#include "ballast/kernels/rows_alone_paths.h"

namespace ballast::experts {

using at::Tensor;

Tensor expert_feed_forward_alone(const Tensor& x, at::IntArrayRef rows_of_expert,
                                 const ExpertStacks& w) {
  const Tensor y = at::empty_like(x);
  for (const ExpertPiece& piece : expert_pieces(rows_of_expert, x.size(0), /*tasks=*/1)) {
    const auto of = [&](const Tensor& stack) {
      return stack.defined() ? stack[piece.expert] : Tensor();
    };
    const auto if_there = [&](const Tensor& stack) {
      return stack.defined() ? std::optional(of(stack)) : std::nullopt;
    };
    const Tensor given = piece.of(x);
    const Tensor normed = w.form.norms ? std::get<1>(kernels::norm_rows_alone(
                                             given, std::nullopt, of(w.norm), if_there(w.norm_bias),
                                             w.form.norm.takes_mean(), w.form.norm.epsilon))
                                       : given;
    const kernels::Inner inner =
        kernels::activated_product(normed, of(w.up), of(w.up_bias), w.form.activation);
    const Tensor change = kernels::multiply_transposed(inner.active, of(w.down), of(w.down_bias));
    Tensor here = piece.of(y);
    w.form.norms ? at::add_out(here, given, change) : here.copy_(change);
  }
  return y;
}

}  // namespace ballast::experts
