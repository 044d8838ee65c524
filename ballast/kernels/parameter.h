// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <utility>

namespace ballast::kernels {

// A weight and the place its gradient is summed in. Backward passes add to `gradient` in place (the
// GEMM writes with beta = 1) and return no gradient to autograd.
struct Parameter {
  at::Tensor value;
  at::Tensor gradient;  // the shape of value; undefined: no gradient is wanted
  // [] bool on the host. True: `gradient` has no meaning yet, and the next pass writes it instead
  // of adding to it. Undefined: it always has.
  at::Tensor is_unwritten = {};
};

// What a backward pass has of a Parameter.
struct GradientSum {
  GradientSum(at::Tensor values, at::Tensor is_unwritten = {})  // NOLINT: a sum is one
      : values(std::move(values)), is_unwritten(std::move(is_unwritten)) {}

  // Whether the caller is the one who writes it. From now on it is a sum.
  bool begins() const {
    return is_unwritten.defined() && std::exchange(*is_unwritten.mutable_data_ptr<bool>(), false);
  }
  // For those who can only add: zeros, where it was no sum yet.
  const at::Tensor& begun() const {
    if (values.defined() && begins()) values.zero_();
    return values;
  }

  at::Tensor values, is_unwritten;
};

// What a module has where it has no such parameter.
inline const Parameter& no_parameter() {
  static const Parameter none;
  return none;
}

// For autograd Functions: the sums a backward pass adds to, kept beside the saved variables,
// because their versions change before backward reads them (a tied weight is summed into twice).
inline c10::List<at::Tensor> gradient_sums(std::initializer_list<Parameter> parameters) {
  c10::List<at::Tensor> sums;
  for (const Parameter& parameter : parameters) sums.push_back(parameter.gradient);
  return sums;
}
// Which of them are not written yet, for those that can be.
inline c10::List<at::Tensor> unwritten_sums(std::initializer_list<Parameter> parameters) {
  c10::List<at::Tensor> flags;
  for (const Parameter& parameter : parameters) flags.push_back(parameter.is_unwritten);
  return flags;
}

}  // namespace ballast::kernels
