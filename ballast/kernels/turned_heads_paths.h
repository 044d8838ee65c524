// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "ballast/kernels/optional_tensor.h"

namespace ballast::kernels {

// turn_heads() and turn_heads_back() by libtorch's own operations, on any device: what is done
// where a device has no kernel for a case. Norms are both there or both missing, and so are the
// tables.
std::tuple<at::Tensor, at::Tensor> plain_turn_heads(const at::Tensor& qkv,
                                                    const OptionalTensor& cosines,
                                                    const OptionalTensor& sines,
                                                    const OptionalTensor& query_norm,
                                                    const OptionalTensor& key_norm, int64_t queries,
                                                    int64_t keys, double epsilon, bool with_values);

at::Tensor plain_turn_heads_back(const at::Tensor& dqueries, const at::Tensor& dkeys,
                                 const at::Tensor& dvalues, const at::Tensor& qkv,
                                 const OptionalTensor& inverse, const OptionalTensor& cosines,
                                 const OptionalTensor& sines, const OptionalTensor& query_norm,
                                 const OptionalTensor& key_norm, const OptionalTensor& query_sum,
                                 const OptionalTensor& key_sum);

}  // namespace ballast::kernels
