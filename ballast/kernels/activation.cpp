// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/activation.h"

#include <torch/library.h>

#include "ballast/kernels/activation_paths.h"
#include "ballast/kernels/find_op.h"

namespace ballast::kernels {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def("activate(Tensor x, int activation) -> Tensor");
  library.def("activate_backward(Tensor dy, Tensor x, int activation) -> Tensor");
}

namespace {

void check(const char* name, const Tensor& x, Activation activation) {
  TORCH_CHECK(activation != Activation::kNone && x.dim() >= 1 &&
                  x.size(-1) % columns_taken(activation) == 0,
              name, ": want an activation and x [..., F], got ", x.sizes());
}

}  // namespace

Tensor activate(const Tensor& x, Activation activation) {
  check("activate", x, activation);
  static const auto op = find_op<decltype(plain_activate)>("ballast::activate");
  return op.call(x, static_cast<int64_t>(activation));
}

Tensor activate_backward(const Tensor& dy, const Tensor& x, Activation activation) {
  check("activate_backward", x, activation);
  TORCH_CHECK(dy.dim() == x.dim() && dy.size(-1) * columns_taken(activation) == x.size(-1) &&
                  dy.scalar_type() == x.scalar_type(),
              "activate_backward: want dy as activate() gave for x ", x.sizes(), ", got ",
              dy.sizes());
  static const auto op = find_op<decltype(plain_activate_backward)>("ballast::activate_backward");
  return op.call(dy, x, static_cast<int64_t>(activation));
}

}  // namespace ballast::kernels
