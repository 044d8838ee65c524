// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/permute_rows.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

Tensor gather_rows_cpu(const Tensor& x, const Tensor& source_of_row) {
  const int64_t rows = source_of_row.size(0);
  const auto* source = source_of_row.const_data_ptr<int64_t>();
  const int64_t highest = rows > 0 ? *std::max_element(source, source + rows) : -1;
  TORCH_CHECK(highest < x.size(0), "permute_rows: row ", highest, " of ", x.size(0));
  Tensor y = at::empty({rows, x.size(1)}, x.options());
  const size_t bytes = x.size(1) * x.element_size();
  const auto* from = static_cast<const char*>(x.const_data_ptr());
  auto* to = static_cast<char*>(y.mutable_data_ptr());
  const auto grain = static_cast<int64_t>(std::max<size_t>(1, (1 << 16) / (bytes + 1)));
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (source[i] < 0) {
        std::memset(to + i * bytes, 0, bytes);
      } else {
        std::memcpy(to + i * bytes, from + source[i] * bytes, bytes);
      }
    }
  });
  return y;
}

// y[i] = x[source_of_row[i]], zeros where that is negative.
Tensor gather_rows(const Tensor& x, const Tensor& source_of_row) {
  if (x.is_cpu()) return gather_rows_cpu(x.contiguous(), source_of_row.contiguous());
  if (x.size(0) == 0) return at::zeros({source_of_row.size(0), x.size(1)}, x.options());
  return at::index_select(x, 0, source_of_row.clamp_min(0))
      .masked_fill_(source_of_row.lt(0).unsqueeze(1), 0);
}

struct PermuteRowsFunction : torch::autograd::Function<PermuteRowsFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& source_of_row,
                        const Tensor& row_of_source) {
    context->save_for_backward({row_of_source});
    return gather_rows(x, source_of_row);
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    return {gather_rows(dy[0], context->get_saved_variables()[0]), {}, {}};
  }
};

}  // namespace

Tensor permute_rows(const Tensor& x, const Tensor& source_of_row, const Tensor& row_of_source) {
  TORCH_CHECK(x.dim() == 2 && source_of_row.dim() == 1 && row_of_source.dim() == 1 &&
                  row_of_source.size(0) == x.size(0) && source_of_row.scalar_type() == at::kLong &&
                  row_of_source.scalar_type() == at::kLong,
              "permute_rows: want x [N, D], int64 source_of_row [M] and row_of_source [N], got ",
              x.sizes(), ", ", source_of_row.sizes(), " and ", row_of_source.sizes());
  return PermuteRowsFunction::apply(x, source_of_row, row_of_source);
}

}  // namespace ballast
