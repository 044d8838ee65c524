// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// While one of these is there, what this thread computes of a row does not depend, to the bit, on
// the other rows: on their values, their number, or its place among them. Libraries choose their
// order of additions by the number of rows, and another code for a vector's last numbers.
// It holds on the CPU in fp32 and fp64 and without autograd, for what a pass of a model over new
// tokens does: products with weights, norms, activations, experts, gates, logits, and attention to
// cached tokens, one new token a row. Elsewhere nothing changes.
class RowsAlone {
 public:
  RowsAlone();
  ~RowsAlone();
  RowsAlone(const RowsAlone&) = delete;
  RowsAlone& operator=(const RowsAlone&) = delete;

  // Whether rows of x are to be computed so.
  static bool hold_for(const at::Tensor& x);

 private:
  const bool before_;
};

}  // namespace ballast::kernels
