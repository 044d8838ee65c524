// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/muon.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/kernels/weight_average.h"
#include "tests/kernels/twins.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

using test::Case;
using test::dtype_name;

// A tolerance is of values near 1: a few roundings.
class MuonKernels : public test::Twins {
 protected:
  // Three matrices [4, 6] in buffers of 100 numbers; gradients end earlier than weights.
  MuonBuffers buffers() const {
    const at::Device device(GetParam().device);
    const auto master = GetParam().dtype == at::kBFloat16 ? at::kFloat : GetParam().dtype;
    const Tensor weights = at::randn({100}, at::kDouble).to(device, GetParam().dtype);
    MuonBuffers b{.working = weights,
                  .master = master == GetParam().dtype ? weights : weights.to(master),
                  .gradient = at::randn({96}, at::kDouble).to(device, GetParam().dtype),
                  .momentum = at::randn({96}, at::kDouble).to(device, master),
                  .offsets = at::tensor({70, 3, 40}, at::kLong).to(device)};
    return b;
  }
  static Tensor matrices(const Tensor& flat) {  // [3, 4, 6]
    return at::stack({flat.narrow(0, 70, 24), flat.narrow(0, 3, 24), flat.narrow(0, 40, 24)})
        .view({3, 4, 6});
  }
  // All but the matrices.
  static Tensor others(const Tensor& flat) {
    std::vector<Tensor> parts{flat.narrow(0, 0, 3), flat.narrow(0, 27, 13), flat.narrow(0, 64, 6),
                              flat.narrow(0, 94, flat.numel() - 94)};
    return at::cat(parts);
  }
  void expect_close(const Tensor& got, const Tensor& want, const char* what) const {
    EXPECT_LE((exact(got) - want).abs().max().item<double>(), GetParam().tolerance) << what;
  }
  Tensor scale(double value, const MuonBuffers& b) const {
    return at::scalar_tensor(value, b.master.options());
  }
};

TEST_P(MuonKernels, LookWhereNesterovLooks) {
  const MuonBuffers b = buffers();
  const Tensor g = exact(matrices(b.gradient)) * 0.5, m = exact(matrices(b.momentum));
  const Tensor rest_of_gradient = others(b.gradient), rest_of_momentum = others(b.momentum);
  const Tensor directions = muon_momentum_(b, {4, 6}, {.momentum = 0.9}, scale(0.5, b));
  const Tensor next = 0.9 * m + 0.1 * g;
  expect_close(matrices(b.momentum), next, "momentum");
  EXPECT_EQ(directions.scalar_type(), GetParam().dtype);
  expect_close(directions, 0.9 * next + 0.1 * g, "directions");
  EXPECT_EQ(matrices(b.gradient).abs().max().item<double>(), 0) << "gradients are cleared";
  EXPECT_TRUE(at::equal(others(b.gradient), rest_of_gradient));
  EXPECT_TRUE(at::equal(others(b.momentum), rest_of_momentum));
}

TEST_P(MuonKernels, MoveMatricesAndDecayThem) {
  const MuonBuffers b = buffers();
  const Tensor w = exact(matrices(b.master)), rest = others(b.master);
  const Tensor directions = at::randn({3, 4, 6}, at::kDouble).to(b.gradient.options());
  const Tensor numbers = at::tensor({0.1, 7.0}, at::kDouble).to(b.master.device());
  muon_move_(b, directions, {.weight_decay = 0.3, .rate = 2, .size = 1.5}, numbers, scale(1, b));
  expect_close(matrices(b.master), w * (1 - 0.2 * 0.3) - 0.2 * 1.5 * exact(directions), "weights");
  EXPECT_TRUE(at::equal(others(b.master), rest));
  EXPECT_TRUE(at::equal(b.working, b.master.to(b.working.scalar_type())));
}

TEST_P(MuonKernels, ChangeNothingButTheGradientWhenTheScaleIsNotFinite) {
  const MuonBuffers b = buffers();
  const Tensor momentum = b.momentum.clone(), master = b.master.clone();
  const Tensor directions = muon_momentum_(b, {4, 6}, {.momentum = 0.9}, scale(std::nan(""), b));
  EXPECT_EQ(directions.abs().max().item<double>(), 0);
  muon_move_(b, directions, {.weight_decay = 1},
             at::ones({1}, b.offsets.options().dtype(at::kDouble)), scale(std::nan(""), b));
  EXPECT_TRUE(at::equal(b.momentum, momentum));
  EXPECT_TRUE(at::equal(b.master, master));
  EXPECT_EQ(matrices(b.gradient).abs().max().item<double>(), 0);
}

TEST_P(MuonKernels, AverageWeights) {
  const auto options =
      at::device(GetParam().device)
          .dtype(GetParam().dtype == at::kBFloat16 ? at::kFloat : GetParam().dtype);
  const Tensor weights = at::randn({100'003}, options), average = at::randn({100'003}, options);
  const Tensor share = at::full({1}, 0.1, options.dtype(at::kDouble));
  const Tensor before = exact(average);
  average_weights_(average, weights, share, at::scalar_tensor(0.5, options));
  expect_close(average, before + 0.1 * (exact(weights) - before), "average");
  const Tensor kept = average.clone();
  average_weights_(average, weights, share, at::scalar_tensor(std::nan(""), options));
  EXPECT_TRUE(at::equal(average, kept)) << "nothing moved the weights";
}

INSTANTIATE_TEST_SUITE_P(Cpu, MuonKernels,
                         ::testing::Values(Case{at::kCPU, at::kDouble, 1e-14},
                                           Case{at::kCPU, at::kFloat, 2e-6}),
                         dtype_name);

INSTANTIATE_TEST_SUITE_P(Cuda, MuonKernels,
                         ::testing::Values(Case{at::kCUDA, at::kDouble, 1e-14},
                                           Case{at::kCUDA, at::kFloat, 2e-6},
                                           Case{at::kCUDA, at::kBFloat16, 2e-2}),
                         dtype_name);

}  // namespace
}  // namespace ballast::kernels
