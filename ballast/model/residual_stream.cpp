// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/residual_stream.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <array>
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
  const bool keeps = std::exchange(keeps_, false);
  if (!change_.defined()) {
    // All others by x meet at a view of it before the gradient of what is kept comes.
    if (keeps) {
      kept_ = x_;
      x_ = x_.view_as(x_);
    }
    return kernels::layer_norm(x_, weight, bias, form);
  }
  const auto [sum, normed] =
      kernels::add_layer_norm(x_, std::exchange(change_, {}), weight, bias, form, *bias_);
  x_ = sum;
  if (keeps) kept_ = sum;
  return normed;
}

Tensor ResidualStream::take_kept() {
  TORCH_CHECK(!keeps_, "ResidualStream: no norm has read x since keep_next()");
  return std::exchange(kept_, {});
}

void ResidualStream::pass(const std::function<Tensor(const Tensor&)>& mark) {
  // All earlier work waits for the gradient by the change, which comes together with that by x.
  Tensor& last = change_.defined() ? change_ : x_;
  last = mark(last);
}

// Autograd sees one operation on x and change.
struct RecomputedPart : torch::autograd::Function<RecomputedPart> {
  struct Kept : torch::CustomClassHolder {
    Kept(ResidualStream::Part given, const ResidualStream& entered)
        : part(std::move(given)), bias(entered.bias_), keeps(entered.keeps_) {}
    const ResidualStream::Part part;
    const kernels::Parameter* const bias;  // of the change that enters
    const bool keeps;
  };

  static ResidualStream stream_of(const Tensor& x, const Tensor& change, const Kept& kept) {
    ResidualStream stream(x);
    stream.change_ = change;
    stream.bias_ = kept.bias;
    stream.keeps_ = kept.keeps;
    return stream;
  }

  // Three places, in this order; what is not there is undefined. x and what is kept may be one
  // tensor: its gradient then comes with the last of them.
  static std::array<Tensor, 3> results_of(const ResidualStream& stream) {
    return {stream.x_, stream.change_, stream.kept_};
  }

  // Gives what of the results is there. `stream`: what enters; takes of what leaves all but these.
  static tensor_list forward(AutogradContext* context, const Tensor& x,
                             const std::optional<Tensor>& change, const ResidualStream::Part& part,
                             ResidualStream* stream) {
    context->save_for_backward({x, change.value_or(Tensor())});
    const auto kept = c10::make_intrusive<Kept>(part, *stream);
    context->saved_data["part"] = c10::IValue::make_capsule(kept);
    context->set_materialize_grads(false);
    *stream = stream_of(x, change.value_or(Tensor()), *kept);
    part(*stream);
    tensor_list there;
    for (const Tensor& result : results_of(*stream))
      if (result.defined()) there.push_back(result);
    return there;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    tensor_list entered;
    for (const Tensor& saved : context->get_saved_variables())
      entered.push_back(saved.defined() ? saved.detach().requires_grad_() : Tensor());
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data["part"].toCapsule());
    ResidualStream stream = stream_of(entered[0], entered[1], *kept);
    {
      const at::AutoGradMode with_graph(true);
      kept->part(stream);
    }
    tensor_list left, gradients;
    size_t i = 0;
    for (const Tensor& result : results_of(stream)) {
      if (!result.defined()) continue;
      const Tensor& gradient = dy[i++];
      if (!gradient.defined()) continue;
      left.push_back(result);
      gradients.push_back(gradient);
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
      x_, change_.defined() ? std::optional(change_) : std::nullopt, part, this);
  size_t i = 0;
  for (Tensor* const result : {&x_, &change_, &kept_})
    if (result->defined()) *result = results[i++];
}

}  // namespace ballast::model
