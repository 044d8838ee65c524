// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// The products of gemm.h with what surrounds them in one pass over the memory: bf16 on a GPU.

enum class ProductForm : int64_t {
  kPlain,                // y = left right
  kRightTransposed,      // y = left right^T
  kLeftTransposed,       // y = left^T right
  kAddedLeftTransposed,  // y += left^T right
};

// What is done as y is written: bias is added, unless it is undefined, and then relu taken.
enum class ProductEnd : int64_t { kBias, kRelu };

struct FusedProduct {
  at::Tensor left, right;
  ProductForm form = ProductForm::kPlain;
  ProductEnd end = ProductEnd::kBias;
  at::Tensor bias{};  // [N]; dense
};

// Computes y [M, N], or a stack of these; all on a GPU, y in bf16. False: cublasLt has no such
// product, and y is as it was.
bool multiply_fused(const at::Tensor& y, const FusedProduct& product);

}  // namespace ballast::kernels
