// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// Matrices near the orthogonal ones that are nearest to these: all singular values become about 1
// (0.7 to 1.2). Five steps of the quintic iteration X <- a X + (b A + c A^2) X with A = X X^T, from
// X of Frobenius norm 1, in the dtype given; a matrix of zeros stays. Deterministic; nothing waits
// for a GPU.  matrices [N, R, C] -> [N, R, C]
at::Tensor orthogonalised(const at::Tensor& matrices);

}  // namespace ballast::kernels
