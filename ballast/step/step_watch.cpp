// SPDX-License-Identifier: Apache-2.0
#include "ballast/step/step_watch.h"

#include <torch/csrc/autograd/custom_function.h>

#include <array>

namespace ballast::step {
namespace {

using at::Tensor;

// Where the residual stream goes from one part of a step into another.
struct Boundary : torch::autograd::Function<Boundary> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        StepWatch* watch, StepPart part) {
    context->saved_data["watch"] = reinterpret_cast<int64_t>(watch);
    context->saved_data["before"] = static_cast<int64_t>(watch->part());
    watch->switch_to(part);
    return x.view_as(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& dy) {
    reinterpret_cast<StepWatch*>(context->saved_data["watch"].toInt())
        ->switch_to(static_cast<StepPart>(context->saved_data["before"].toInt()));
    return {dy[0], {}, {}};
  }
};

}  // namespace

std::string_view part_name(StepPart part) {
  static constexpr std::array<std::string_view, kStepParts> kNames = {
      "other",      "attention",     "feed_forward", "experts",
      "assignment", "communication", "vocabulary",   "optimizer"};
  return kNames.at(static_cast<size_t>(part));
}

Tensor pass_into(StepPart part, const Tensor& x, StepWatch* watch) {
  if (watch == nullptr || watch->part() == part) return x;
  return Boundary::apply(x, watch, part);
}

Tensor communicate(const Tensor& x, StepWatch* watch,
                   const std::function<Tensor(const Tensor&)>& exchange) {
  if (watch == nullptr) return exchange(x);
  const StepPart before = watch->part();
  return pass_into(before, exchange(pass_into(StepPart::kCommunication, x, watch)), watch);
}

}  // namespace ballast::step
