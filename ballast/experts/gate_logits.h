// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/parameter.h"

namespace ballast::experts {

// x W^T in fp32, or fp64 for fp64 input: in half precision many logits would be equal.
// x [T, D], weight [E, D] -> [T, E]; gradients to x, in its type, and to the weight.
at::Tensor gate_logits(const at::Tensor& x, const kernels::Parameter& weight);

}  // namespace ballast::experts
