// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::kernels {

// The norm's passes over rows by libtorch's own operations, on any device. They
// are what ballast::norm_rows and ballast::norm_rows_backward do where a device has no kernel for a
// case.

// x + change (undefined without a change), its norm, mean and 1 / deviation of its rows; without
// the mean it is RMSNorm, and the mean undefined or anything.
// x [T, D] -> [T, D], [T, D], [T, 1], [T, 1]
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> plain_norm_rows(
    const at::Tensor& x, const OptionalTensor& change, const at::Tensor& weight,
    const OptionalTensor& bias, bool takes_mean, double epsilon);

// dsum + the norm's gradient by its argument; adds those by weight and bias to the sums that are
// wanted, and the rows of the result to change_sum. `sum` is what was normed.  -> [T, D]
at::Tensor plain_norm_rows_backward(const at::Tensor& dnormed, const OptionalTensor& dsum,
                                    const at::Tensor& sum, const at::Tensor& mean,
                                    const at::Tensor& inverse_deviation, const at::Tensor& weight,
                                    const OptionalTensor& weight_sum,
                                    const OptionalTensor& bias_sum, bool takes_mean,
                                    const OptionalTensor& change_sum = std::nullopt);

}  // namespace ballast::kernels
