// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace ballast::kernels {

// A weight and the place its gradient is summed in. Backward passes add to `gradient` in place (the
// GEMM writes with beta = 1) and return no gradient to autograd.
struct Parameter {
  at::Tensor value;
  at::Tensor gradient;  // the shape of value; undefined: no gradient is wanted
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

}  // namespace ballast::kernels
