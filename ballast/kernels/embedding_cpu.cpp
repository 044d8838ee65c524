// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <torch/library.h>

#include "ballast/kernels/embedding.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

// One index for each of `rows`.
Tensor repeated(const Tensor& indices, int64_t rows) {
  const int64_t count = indices.size(0);
  return count == rows ? indices : indices.repeat({rows / count});
}

Tensor embed_cpu(const Tensor& tokens, const Tensor& positions, const Tensor& words,
                 const Tensor& places) {
  return words.index_select(0, tokens).add_(
      places.index_select(0, repeated(positions, tokens.size(0))));
}

void add_rows_at_cpu_(const Tensor& sum, const Tensor& indices, const Tensor& rows) {
  sum.index_add_(0, repeated(indices, rows.size(0)), rows);
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("embed", embed_cpu);
  library.impl("add_rows_at_", add_rows_at_cpu_);
}

}  // namespace ballast::kernels
