// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <torch/csrc/autograd/custom_function.h>

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct EmbedFunction : torch::autograd::Function<EmbedFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& tokens, const Tensor& positions,
                        const Parameter& token_embedding, const Parameter& position_embedding,
                        const Tensor&) {
    context->save_for_backward({tokens, positions});
    context->saved_data["sums"] = gradient_sums({token_embedding, position_embedding});
    return token_embedding.value.index_select(0, tokens).add_(
        position_embedding.value.index_select(0, positions));
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorList();
    for (size_t i = 0; i < 2; ++i) {
      const Tensor sum = sums[i];
      if (sum.defined()) sum.index_add_(0, saved[i], dy[0]);
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
    return part.value.index_select(0, row).masked_fill_(outside, 0);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    const auto saved = context->get_saved_variables();
    const Tensor sum = context->saved_data["sums"].toTensorList()[0];
    if (sum.defined()) sum.index_add_(0, saved[0], dy[0].masked_fill(saved[1], 0));
    return {{}, {}, {}, {}};
  }
};

}  // namespace

Tensor look_up(const Tensor& indices, int64_t first, const Parameter& part,
               const Tensor& graph_root) {
  TORCH_CHECK(indices.dim() == 1 && part.value.dim() == 2,
              "look_up: want indices [T] and a part [R, D], got ", indices.sizes(), " and ",
              part.value.sizes());
  return LookUpFunction::apply(indices, first, part, graph_root);
}

Tensor embed(const Tensor& tokens, const Tensor& positions, const Parameter& token_embedding,
             const Parameter& position_embedding, const Tensor& graph_root) {
  TORCH_CHECK(tokens.dim() == 1 && tokens.sizes() == positions.sizes(),
              "embed: want tokens and positions [T], got ", tokens.sizes(), " and ",
              positions.sizes());
  return EmbedFunction::apply(tokens, positions, token_embedding, position_embedding, graph_root);
}

}  // namespace ballast
