// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/autograd.h>

#include "ballast/kernels/cuda_plugin.h"
#include "tests/experts/layer_setting.h"

namespace ballast::test {

inline TableOptions on_gpu(at::ScalarType working) {
  return {.device = at::Device(at::kCUDA, 0),
          .working = working,
          .master = working == at::kDouble ? at::kDouble : at::kFloat};
}

inline at::Tensor home(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kDouble);
}

// What a layer gives, on the CPU in double.
struct Outcome {
  at::Tensor y, dh, weights;  // dh, weights: gradients of the tokens and, flat, of all parameters
};

// Forward and backward, where the layer is and in its type.
inline Outcome compute(Layer& l, const at::Tensor& h, const at::Tensor& dy,
                       const Routing& routing) {
  const auto options = l.table.working().options();
  at::Tensor x = h.to(options).detach().requires_grad_();
  l.table.gradient().zero_();
  const at::Tensor y = l.layer.forward(x, routing);
  torch::autograd::backward({y}, {dy.to(options)});
  return {home(y), home(x.grad()), home(l.table.gradient())};
}

// Sums of up to a few thousand products in double, in another order.
inline void expect_near(const Outcome& got, const Outcome& expected) {
  EXPECT_LE((got.y - expected.y).abs().max().item<double>(), 1e-12);
  EXPECT_LE((got.dh - expected.dh).abs().max().item<double>(), 1e-12);
  EXPECT_LE((got.weights - expected.weights).abs().max().item<double>(), 1e-11);
}

// Errors of a row, relative to it.
inline at::Tensor row_errors(const at::Tensor& got, const at::Tensor& expected) {
  return (got - expected).norm(2, 1) / expected.norm(2, 1);
}

inline double relative_error(const at::Tensor& got, const at::Tensor& expected) {
  return ((got - expected).norm() / expected.norm()).item<double>();
}

}  // namespace ballast::test
