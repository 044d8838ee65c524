// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/newton_schulz.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <array>

namespace ballast::kernels {

using at::Tensor;

namespace {

constexpr int kSteps = 5;
// Steep at 0, so that small singular values grow fast; near 1 it need not be exact.
constexpr double kFirst = 3.4445, kThird = -4.7750, kFifth = 2.0315;
constexpr double kLeastNorm = 1e-7;  // keeps zeros

// Of each matrix; half precision is summed in fp32.  [N, 1, 1]
Tensor frobenius_norms(const Tensor& matrices) {
  const bool is_half = matrices.scalar_type() == at::kBFloat16;
  const std::array<int64_t, 2> of_matrix = {1, 2};
  return at::linalg_vector_norm(matrices, 2, at::IntArrayRef(of_matrix), /*keepdim=*/true,
                                is_half ? at::kFloat : matrices.scalar_type());
}

}  // namespace

Tensor orthogonalised(const Tensor& matrices) {
  TORCH_CHECK(matrices.dim() == 3, "orthogonalised: want matrices [N, R, C], got ",
              matrices.sizes());
  const at::NoGradGuard no_grad;
  const bool is_tall = matrices.size(1) > matrices.size(2);
  // The smaller of the two products with itself.
  Tensor x = is_tall ? matrices.transpose(1, 2) : matrices;
  x = (x / frobenius_norms(matrices).clamp_min_(kLeastNorm)).to(matrices.scalar_type());
  for (int step = 0; step < kSteps; ++step) {
    const Tensor a = at::bmm(x, x.transpose(1, 2));
    const Tensor b = at::baddbmm(a, a, a, kThird, kFifth);
    x = at::baddbmm(x, b, x, kFirst, 1);
  }
  return is_tall ? x.transpose(1, 2) : x;
}

}  // namespace ballast::kernels
