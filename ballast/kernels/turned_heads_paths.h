// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace ballast::kernels {

// turn_heads() and turn_heads_back() by libtorch's own operations, on any device: what is done
// where a device has no kernel for a case. Norms are both there or both missing, and so are the
// tables.
std::tuple<at::Tensor, at::Tensor> plain_turn_heads(const at::Tensor& qkv,
                                                    const std::optional<at::Tensor>& cosines,
                                                    const std::optional<at::Tensor>& sines,
                                                    const std::optional<at::Tensor>& query_norm,
                                                    const std::optional<at::Tensor>& key_norm,
                                                    int64_t queries, int64_t keys, double epsilon,
                                                    bool with_values);

at::Tensor plain_turn_heads_back(
    const at::Tensor& dqueries, const at::Tensor& dkeys, const at::Tensor& dvalues,
    const at::Tensor& qkv, const std::optional<at::Tensor>& inverse,
    const std::optional<at::Tensor>& cosines, const std::optional<at::Tensor>& sines,
    const std::optional<at::Tensor>& query_norm, const std::optional<at::Tensor>& key_norm,
    const std::optional<at::Tensor>& query_sum, const std::optional<at::Tensor>& key_sum);

}  // namespace ballast::kernels
