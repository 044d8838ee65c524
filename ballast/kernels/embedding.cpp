// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/embedding.h"

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

}  // namespace

Tensor embed(const Tensor& tokens, const Tensor& positions, const Parameter& token_embedding,
             const Parameter& position_embedding, const Tensor& graph_root) {
  TORCH_CHECK(tokens.dim() == 1 && tokens.sizes() == positions.sizes(),
              "embed: want tokens and positions [T], got ", tokens.sizes(), " and ",
              positions.sizes());
  return EmbedFunction::apply(tokens, positions, token_embedding, position_embedding, graph_root);
}

}  // namespace ballast
