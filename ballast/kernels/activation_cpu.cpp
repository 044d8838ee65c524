// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/library.h>

#include "ballast/kernels/activation.h"
#include "ballast/kernels/activation_paths.h"
#include "ballast/kernels/rows_alone.h"
#include "ballast/kernels/rows_alone_paths.h"

namespace ballast::kernels {

using at::Tensor;

namespace {

const char* gelu_form(Activation activation) {
  return activation == Activation::kGeluTanh ? "tanh" : "none";
}

}  // namespace

Tensor plain_activate(const Tensor& x, int64_t kind) {
  const auto activation = static_cast<Activation>(kind);
  if (RowsAlone::hold_for(x)) return activate_rows_alone(x, activation);
  switch (activation) {
    case Activation::kGelu:
    case Activation::kGeluTanh:
      return at::gelu(x, gelu_form(activation));
    case Activation::kRelu2:
      return at::relu(x).square_();
    case Activation::kSwiglu: {
      const int64_t width = x.size(-1) / 2;
      return at::silu(x.narrow(-1, 0, width)).mul_(x.narrow(-1, width, width));
    }
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kNone:
      break;
  }
  return x;
}

Tensor plain_activate_backward(const Tensor& dy, const Tensor& x, int64_t kind) {
  const auto activation = static_cast<Activation>(kind);
  switch (activation) {
    case Activation::kGelu:
    case Activation::kGeluTanh:
      return at::gelu_backward(dy, x, gelu_form(activation));
    case Activation::kRelu2:
      return at::relu(x).mul_(2).mul_(dy);
    case Activation::kSwiglu: {
      const int64_t width = x.size(-1) / 2;
      const Tensor gate = x.narrow(-1, 0, width), up = x.narrow(-1, width, width);
      return at::cat({at::silu_backward(dy * up, gate), at::silu(gate).mul_(dy)}, -1);
    }
    case Activation::kRelu:
      return at::threshold_backward(dy, x, 0);
    case Activation::kNone:
      break;
  }
  return dy;
}

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("activate", plain_activate);
  library.impl("activate_backward", plain_activate_backward);
}

}  // namespace ballast::kernels
