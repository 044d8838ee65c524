// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ballast/kernels/find_op.h"

namespace ballast::kernels {

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def("embed(Tensor tokens, Tensor positions, Tensor words, Tensor places) -> Tensor");
  library.def("add_rows_at_(Tensor(a!) sum, Tensor indices, Tensor rows) -> ()");
}

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// Indices [P] for all T rows, again and again.
void check_repeats(const char* name, const Tensor& indices, const Tensor& rows) {
  const int64_t count = indices.numel(), wanted = rows.size(0);
  TORCH_CHECK(indices.dim() == 1 && indices.scalar_type() == at::kLong &&
                  (count == 0 ? wanted == 0 : wanted % count == 0),
              name, ": want int64 indices [P] with P a divisor of ", wanted, ", got ",
              indices.sizes());
}

Tensor embedded(const Tensor& tokens, const Tensor& positions, const Parameter& token_embedding,
                const Parameter& position_embedding) {
  static const auto op =
      find_op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>("ballast::embed");
  return op.call(tokens, positions, token_embedding.value, position_embedding.value);
}

struct EmbedFunction : torch::autograd::Function<EmbedFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& tokens, const Tensor& positions,
                        const Parameter& token_embedding, const Parameter& position_embedding,
                        const Tensor&) {
    context->save_for_backward({tokens, positions});
    context->saved_data["sums"] = gradient_sums({token_embedding, position_embedding});
    context->saved_data["unwritten"] = unwritten_sums({token_embedding, position_embedding});
    return embedded(tokens, positions, token_embedding, position_embedding);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const auto unwritten = context->saved_data["unwritten"].toTensorList();
    for (size_t i = 0; i < 2; ++i) {
      const Tensor sum = GradientSum(sums[i], unwritten[i]).begun();
      if (sum.defined()) add_rows_at_(sum, saved[i], dy[0]);
    }
    return {{}, {}, {}, {}, {}};
  }
};

struct LookUpFunction : torch::autograd::Function<LookUpFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& indices, int64_t first,
                        const Parameter& part, const Tensor&) {
    const int64_t rows = part.value.size(0);
    const Tensor local = indices - first;
    const Tensor outside = local.lt(0).logical_or_(local.ge(rows)).unsqueeze(1);  // [T, 1]
    // Those outside are spread over all rows: on a GPU adding zeros to one of them would queue up.
    const Tensor row = local.remainder(rows);
    context->save_for_backward({row, outside});
    context->saved_data["sums"] = gradient_sums({part});
    context->saved_data["unwritten"] = unwritten_sums({part});
    return part.value.index_select(0, row).masked_fill_(outside, 0);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    const auto unwritten = context->saved_data["unwritten"].toTensorList();
    const Tensor sum = GradientSum(sums[0], unwritten[0]).begun();
    if (sum.defined()) add_rows_at_(sum, saved[0], dy[0].masked_fill(saved[1], 0));
    return {{}, {}, {}, {}};
  }
};

}  // namespace

void add_rows_at_(const Tensor& sum, const Tensor& indices, const Tensor& rows) {
  static const auto op =
      find_op<void(const Tensor&, const Tensor&, const Tensor&)>("ballast::add_rows_at_");
  const at::NoGradGuard no_grad;
  check_repeats("add_rows_at_", indices, rows);
  TORCH_CHECK(sum.dim() == 2 && rows.dim() == 2 && sum.size(1) == rows.size(1) &&
                  sum.scalar_type() == rows.scalar_type(),
              "add_rows_at_: want a sum [R, D] and rows [T, D] of one dtype, got ", sum.sizes(),
              " and ", rows.sizes());
  if (rows.numel() > 0) op.call(sum, indices, rows);
}

Tensor look_up(const Tensor& indices, int64_t first, const Parameter& part,
               const Tensor& graph_root) {
  TORCH_CHECK(indices.dim() == 1 && part.value.dim() == 2,
              "look_up: want indices [T] and a part [R, D], got ", indices.sizes(), " and ",
              part.value.sizes());
  return LookUpFunction::apply(indices, first, part, graph_root);
}

Tensor embed(const Tensor& tokens, const Tensor& positions, const Parameter& token_embedding,
             const Parameter& position_embedding, const Tensor& graph_root) {
  TORCH_CHECK(tokens.dim() == 1, "embed: want tokens [T], got ", tokens.sizes());
  check_repeats("embed", positions, tokens);
  if (!at::GradMode::is_enabled())
    return embedded(tokens, positions, token_embedding, position_embedding);
  return EmbedFunction::apply(tokens, positions, token_embedding, position_embedding, graph_root);
}

}  // namespace ballast::kernels
