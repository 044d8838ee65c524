// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/newton_schulz.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

// The iteration on singular values alone, with U and V as they are. fp64.  [N, R, C]
Tensor by_singular_values(const Tensor& matrices) {
  const auto [u, s, v] = at::linalg_svd(matrices, /*full_matrices=*/false);
  Tensor x = s / s.norm(2, -1, /*keepdim=*/true);
  for (int i = 0; i < 5; ++i) x = 3.4445 * x - 4.7750 * x.pow(3) + 2.0315 * x.pow(5);
  return at::matmul(u * x.unsqueeze(-2), v);
}

double largest_difference(const Tensor& a, const Tensor& b) {
  return (a.cpu().to(at::kDouble) - b).abs().max().item<double>();
}

TEST(NewtonSchulz, ChangesSingularValuesAlone) {
  at::manual_seed(1);
  for (const auto& [rows, columns] : {std::pair{12, 12}, {8, 30}, {30, 8}, {1, 5}, {5, 1}}) {
    const Tensor matrices = at::randn({3, rows, columns}, at::kDouble);
    EXPECT_LE(largest_difference(orthogonalised(matrices), by_singular_values(matrices)), 1e-12)
        << rows << " x " << columns;
    // fp32 has 2^-24; five steps multiply it by up to 3.4^5, small singular values above all.
    EXPECT_LE(
        largest_difference(orthogonalised(matrices.to(at::kFloat)), by_singular_values(matrices)),
        1e-4);
  }
}

TEST(NewtonSchulz, MakesSingularValuesNearOne) {
  at::manual_seed(1);
  for (const double size : {1e-6, 1.0, 1e6}) {
    const Tensor values =
        at::linalg_svdvals(orthogonalised(size * at::randn({4, 24, 64}, at::kDouble)));
    EXPECT_GT(values.min().item<double>(), 0.65);
    EXPECT_LT(values.max().item<double>(), 1.25);
  }
}

TEST(NewtonSchulz, AMatrixOfZerosStays) {
  EXPECT_EQ(orthogonalised(at::zeros({2, 3, 4})).abs().max().item<float>(), 0);
}

TEST(NewtonSchulz, AMatrixDoesNotDependOnTheOthers) {
  at::manual_seed(1);
  const Tensor matrices = at::randn({5, 16, 24}, at::kDouble);
  const Tensor all = orthogonalised(matrices);
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_LE(largest_difference(orthogonalised(matrices.narrow(0, i, 1))[0], all[i]), 1e-13);
}

TEST(NewtonSchulzCuda, EqualsThePlainVersion) {
  ASSERT_TRUE(load_cuda_plugin().loaded);
  at::manual_seed(1);
  const Tensor matrices = at::randn({3, 64, 96}, at::kDouble), plain = by_singular_values(matrices);
  const auto there = [&](at::ScalarType dtype) {
    return matrices.to(at::Device(at::kCUDA), dtype);
  };
  EXPECT_LE(largest_difference(orthogonalised(there(at::kDouble)), plain), 1e-12);
  // bf16 has 2^-9; entries are about 1 / sqrt(96), and each of five steps rounds them.
  EXPECT_LE(largest_difference(orthogonalised(there(at::kBFloat16)), plain), 0.05);
  EXPECT_TRUE(at::equal(orthogonalised(there(at::kBFloat16)), orthogonalised(there(at::kBFloat16))))
      << "the same bits every time";
}

}  // namespace
}  // namespace ballast::kernels
