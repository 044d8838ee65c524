// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "ballast/kernels/activation.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/turned_heads.h"

namespace ballast::kernels {

// The operations of gemm.h, layer_norm.h, activation.h and turned_heads.h where RowsAlone holds for
// x.

// x [T, I], weight [O, I], bias [O] or undefined -> [T, O]
at::Tensor multiply_rows_alone(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias, Activation activation);

// As plain_norm_rows; nothing is kept for a way back.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> norm_rows_alone(
    const at::Tensor& x, const OptionalTensor& change, const at::Tensor& weight,
    const OptionalTensor& bias, bool takes_mean, double epsilon);

at::Tensor activate_rows_alone(const at::Tensor& x, Activation activation);

// qkv [T, columns] -> the same with turned queries and keys
at::Tensor turn_rows_alone(const at::Tensor& qkv, const Heads& heads, const Turning& turning);

// cap tanh(x / cap)
at::Tensor cap_rows_alone(const at::Tensor& x, double cap);

}  // namespace ballast::kernels
