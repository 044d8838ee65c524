// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace ballast::kernels {

// Both passes of bias_sums.h by libtorch's operations, for any device and type: y is masked by
// `active` if there is one, then its rows are added to `sum` if there is one.
void plain_mask_and_add_rows(const at::Tensor& y, const std::optional<at::Tensor>& active,
                             const std::optional<at::Tensor>& sum);

}  // namespace ballast::kernels
