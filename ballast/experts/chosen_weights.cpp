// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/chosen_weights.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {

// Passes over contiguous rows, without gradients: those are below. expert is [T, K] there.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "chosen_weights(Tensor affinities, Tensor expert, bool sigmoid, bool among_all) -> Tensor");
  library.def(
      "chosen_weights_backward(Tensor dweights, Tensor affinities, Tensor expert, Tensor weights, "
      "bool sigmoid, bool among_all, Tensor? balance) -> Tensor");
}

namespace {

using at::Tensor;
using kernels::OptionalTensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct ChosenWeightsFunction : torch::autograd::Function<ChosenWeightsFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& affinities, const Tensor& expert,
                        bool sigmoid, bool among_all, const OptionalTensor& balance) {
    static const auto op = kernels::find_op<Tensor(const Tensor&, const Tensor&, bool, bool)>(
        "ballast::chosen_weights");
    const Tensor weights = op.call(affinities, expert, sigmoid, among_all);
    context->save_for_backward({affinities, expert, weights, balance.value_or(Tensor())});
    context->saved_data["sigmoid"] = sigmoid;
    context->saved_data["among_all"] = among_all;
    return weights;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dweights) {
    static const auto op =
        kernels::find_op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool,
                                bool, const OptionalTensor&)>("ballast::chosen_weights_backward");
    const auto saved = context->get_saved_variables();
    return {op.call(dweights[0].contiguous(), saved[0], saved[1], saved[2],
                    context->saved_data["sigmoid"].toBool(),
                    context->saved_data["among_all"].toBool(), kernels::if_defined(saved[3])),
            {},
            {},
            {},
            {}};
  }
};

}  // namespace

Tensor chosen_weights(const Tensor& affinities, const Tensor& expert, const ChosenGate& gate,
                      const Tensor& balance) {
  TORCH_CHECK(affinities.dim() == 2 && expert.dim() == 2 && expert.size(0) >= 1 &&
                  expert.size(1) == affinities.size(0) && expert.scalar_type() == at::kLong,
              "chosen_weights: want affinities [T, E] and int64 experts [K, T], got ",
              affinities.sizes(), " and ", expert.scalar_type(), " ", expert.sizes());
  TORCH_CHECK(affinities.scalar_type() == at::kFloat || affinities.scalar_type() == at::kDouble,
              "chosen_weights: want affinities in fp32 or fp64, got ", affinities.scalar_type());
  TORCH_CHECK(
      !balance.defined() || (balance.dim() == 2 && balance.size(1) == affinities.size(1) &&
                             balance.scalar_type() == at::kDouble && balance.is_contiguous() &&
                             balance.size(0) > 0 && affinities.size(0) % balance.size(0) == 0),
      "chosen_weights: want a balance [P, E] in fp64 for P groups of tokens");
  // One expert alone has no others to be normalised with.
  const bool among_all = expert.size(0) == 1 || !gate.renormalise;
  return ChosenWeightsFunction::apply(affinities.contiguous(), expert.t().contiguous(),
                                      gate.gate == config::Gate::kSigmoid, among_all,
                                      kernels::if_defined(balance));
}

}  // namespace ballast::experts
