// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/kernels/optional_tensor.h"

namespace ballast::kernels {

// Both passes of bias_sums.h by libtorch's operations, for any device and type: y is masked by
// `active` if there is one, then its rows are added to `sum` if there is one.
void plain_mask_and_add_rows(const at::Tensor& y, const OptionalTensor& active,
                             const OptionalTensor& sum);

}  // namespace ballast::kernels
