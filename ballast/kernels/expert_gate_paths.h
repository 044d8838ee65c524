// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast {

// gated_residual on the CPU in fp32 and fp64: one pass over the rows each way. All contiguous.

struct GatedRows {
  at::Tensor y;      // [N, D]
  at::Tensor gates;  // [N, 1]
};
GatedRows gated_residual_cpu(const at::Tensor& h, const at::Tensor& stack,
                             at::IntArrayRef rows_of_expert, const at::Tensor& embeddings);

struct GateInputs {
  const at::Tensor &h, &stack, &gates, &embeddings;
  const at::Tensor& embedding_sums;  // added to, if defined
  at::IntArrayRef rows_of_expert;
};
struct GateGradients {
  at::Tensor dh, dstack;
};
GateGradients gated_residual_backward_cpu(const GateInputs& in, const at::Tensor& dy);

}  // namespace ballast
