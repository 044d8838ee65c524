// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast {

// The products of gemm.h with what surrounds them in one pass over the memory: bf16 on a GPU.

enum class ProductForm : int64_t {
  kPlain,                // y = left right
  kRightTransposed,      // y = left right^T
  kAddedLeftTransposed,  // y += left^T right
};

// What is done as y is written. Where `bias` or `mask` is undefined its part is left out.
enum class ProductEnd : int64_t {
  kBias,          // bias is added
  kRelu,          // bias is added, then relu taken, and mask written
  kMasked,        // y is 0 where relu was, by the mask that it wrote; bias = the sum of y's rows
  kLeftRowsAdded  // y is as it is; bias = the sum of left's rows
};

struct FusedProduct {
  at::Tensor left, right;
  ProductForm form = ProductForm::kPlain;
  ProductEnd end = ProductEnd::kBias;
  at::Tensor bias{};  // [N], or [M] of kLeftRowsAdded; dense
  at::Tensor mask{};  // [M, mask_bytes(N)] in bytes; dense
};

// Bytes of a row of the mask of N columns: bits, in whole blocks of 128.
inline int64_t mask_bytes(int64_t columns) { return (columns + 127) / 128 * 16; }

// Computes y [M, N], or a stack of these; all on a GPU, y in bf16. False: its library has no such
// product, or it is faster in parts. Nothing has been added then, and what is only written holds
// anything.
bool multiply_fused(const at::Tensor& y, const FusedProduct& product);

}  // namespace ballast
