// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/permute_rows.h"

#include "ballast/kernels/spread_rows.h"

namespace ballast {

at::Tensor permute_rows(const at::Tensor& x, const at::Tensor& source_of_row,
                        const at::Tensor& row_of_source) {
  TORCH_CHECK(row_of_source.dim() == 1, "permute_rows: want row_of_source [N], got ",
              row_of_source.sizes());
  return spread_rows(x, source_of_row, row_of_source.unsqueeze(1));
}

}  // namespace ballast
