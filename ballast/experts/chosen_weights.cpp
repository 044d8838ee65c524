// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/chosen_weights.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ballast/kernels/find_op.h"

namespace ballast::experts {

// Passes over contiguous rows, without gradients: those are below. expert is [T, K] there.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def("chosen_weights(Tensor affinities, Tensor expert, bool sigmoid) -> Tensor");
  library.def(
      "chosen_weights_backward(Tensor dweights, Tensor affinities, Tensor expert, Tensor weights, "
      "bool sigmoid) -> Tensor");
}

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct ChosenWeightsFunction : torch::autograd::Function<ChosenWeightsFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& affinities, const Tensor& expert,
                        bool sigmoid) {
    static const auto op =
        kernels::find_op<Tensor(const Tensor&, const Tensor&, bool)>("ballast::chosen_weights");
    const Tensor weights = op.call(affinities, expert, sigmoid);
    context->save_for_backward({affinities, expert, weights});
    context->saved_data["sigmoid"] = sigmoid;
    return weights;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dweights) {
    static const auto op =
        kernels::find_op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool)>(
            "ballast::chosen_weights_backward");
    const auto saved = context->get_saved_variables();
    return {op.call(dweights[0].contiguous(), saved[0], saved[1], saved[2],
                    context->saved_data["sigmoid"].toBool()),
            {},
            {}};
  }
};

}  // namespace

Tensor chosen_weights(const Tensor& affinities, const Tensor& expert, config::Gate gate) {
  TORCH_CHECK(affinities.dim() == 2 && expert.dim() == 2 && expert.size(0) >= 1 &&
                  expert.size(1) == affinities.size(0) && expert.scalar_type() == at::kLong,
              "chosen_weights: want affinities [T, E] and int64 experts [K, T], got ",
              affinities.sizes(), " and ", expert.scalar_type(), " ", expert.sizes());
  TORCH_CHECK(affinities.scalar_type() == at::kFloat || affinities.scalar_type() == at::kDouble,
              "chosen_weights: want affinities in fp32 or fp64, got ", affinities.scalar_type());
  return ChosenWeightsFunction::apply(affinities.contiguous(), expert.t().contiguous(),
                                      gate == config::Gate::kSigmoid);
}

}  // namespace ballast::experts
