// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/residual_stream.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <optional>

#include "ballast/kernels/linear.h"

namespace ballast::model {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

void ResidualStream::add(const Tensor& change, const kernels::Parameter& bias) {
  x_ = value();
  change_ = change;
  bias_ = &bias;
}

const Tensor& ResidualStream::value() {
  if (change_.defined()) x_ = x_ + kernels::sum_bias_gradient(std::exchange(change_, {}), *bias_);
  return x_;
}

Tensor ResidualStream::normed(const kernels::Parameter& weight, const kernels::Parameter& bias,
                              const kernels::NormForm& form) {
  if (!change_.defined()) return kernels::layer_norm(x_, weight, bias, form);
  const auto [sum, normed] =
      kernels::add_layer_norm(x_, std::exchange(change_, {}), weight, bias, form, *bias_);
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
    Kept(ResidualStream::Part given, const kernels::Parameter* of_change)
        : part(std::move(given)), bias(of_change) {}
    const ResidualStream::Part part;
    const kernels::Parameter* const bias;  // of the change that enters
  };

  static tensor_list forward(AutogradContext* context, const Tensor& x,
                             const std::optional<Tensor>& change, const ResidualStream::Part& part,
                             const kernels::Parameter** bias) {
    context->save_for_backward({x, change.value_or(Tensor())});
    context->saved_data["part"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(part, *bias));
    context->set_materialize_grads(false);
    ResidualStream stream(x, change.value_or(Tensor()), *bias);
    part(stream);
    *bias = stream.bias_;
    return stream.change_.defined() ? tensor_list{stream.x_, stream.change_}
                                    : tensor_list{stream.x_};
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    tensor_list entered;
    for (const Tensor& saved : context->get_saved_variables())
      entered.push_back(saved.defined() ? saved.detach().requires_grad_() : Tensor());
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data["part"].toCapsule());
    ResidualStream stream(entered[0], entered[1], kept->bias);
    {
      const at::AutoGradMode with_graph(true);
      kept->part(stream);
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
    by_entered.resize(4);
    return by_entered;
  }
};

void ResidualStream::pass_recomputed(const Part& part) {
  if (!at::GradMode::is_enabled()) return part(*this);
  const tensor_list results = RecomputedPart::apply(
      x_, change_.defined() ? std::optional(change_) : std::nullopt, part, &bias_);
  x_ = results[0];
  change_ = results.size() > 1 ? results[1] : Tensor();
}

}  // namespace ballast::model
