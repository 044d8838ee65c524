// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/residual_stream.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <optional>

namespace ballast::model {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

void ResidualStream::add(const Tensor& change) {
  x_ = value();
  change_ = change;
}

const Tensor& ResidualStream::value() {
  if (change_.defined()) x_ = x_ + std::exchange(change_, {});
  return x_;
}

Tensor ResidualStream::normed(const kernels::Parameter& weight, const kernels::Parameter& bias,
                              const kernels::NormForm& form) {
  if (!change_.defined()) return kernels::layer_norm(x_, weight, bias, form);
  const auto [sum, normed] =
      kernels::add_layer_norm(x_, std::exchange(change_, {}), weight, bias, form);
  x_ = sum;
  return normed;
}

void ResidualStream::pass(const std::function<Tensor(const Tensor&)>& mark) {
  // All earlier work waits for the gradient by the change, which comes together with that by x.
  Tensor& last = change_.defined() ? change_ : x_;
  last = mark(last);
}

// Autograd sees one operation on x and change.
struct RecomputedPart : torch::autograd::Function<RecomputedPart> {
  struct Kept : torch::CustomClassHolder {
    explicit Kept(ResidualStream::Part given) : part(std::move(given)) {}
    const ResidualStream::Part part;
  };

  static tensor_list forward(AutogradContext* context, const Tensor& x,
                             const std::optional<Tensor>& change,
                             const ResidualStream::Part& part) {
    context->save_for_backward({x, change.value_or(Tensor())});
    context->saved_data["part"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(part));
    context->set_materialize_grads(false);
    ResidualStream stream(x, change.value_or(Tensor()));
    part(stream);
    return stream.change_.defined() ? tensor_list{stream.x_, stream.change_}
                                    : tensor_list{stream.x_};
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    tensor_list entered;
    for (const Tensor& saved : context->get_saved_variables())
      entered.push_back(saved.defined() ? saved.detach().requires_grad_() : Tensor());
    ResidualStream stream(entered[0], entered[1]);
    {
      const at::AutoGradMode with_graph(true);
      c10::static_intrusive_pointer_cast<Kept>(context->saved_data["part"].toCapsule())
          ->part(stream);
    }
    tensor_list left, gradients;
    const tensor_list results{stream.x_, stream.change_};
    for (size_t i = 0; i < dy.size(); ++i) {
      if (!dy[i].defined()) continue;
      left.push_back(results[i]);
      gradients.push_back(dy[i]);
    }
    if (!entered[1].defined()) entered.pop_back();
    tensor_list by_entered = torch::autograd::grad(left, entered, gradients);
    by_entered.resize(3);
    return by_entered;
  }
};

void ResidualStream::pass_recomputed(const Part& part) {
  if (!at::GradMode::is_enabled()) return part(*this);
  const tensor_list results =
      RecomputedPart::apply(x_, change_.defined() ? std::optional(change_) : std::nullopt, part);
  x_ = results[0];
  change_ = results.size() > 1 ? results[1] : Tensor();
}

}  // namespace ballast::model
