// SPDX-License-Identifier: Apache-2.0
// What of the products is special on a GPU; that they are right is in gemm_test.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/kernels/cuda_plugin.h"
#include "ballast/kernels/gemm.h"
#include "ballast/kernels/gemm_paths.h"
#include "tests/experts/cuda_graph.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

class ProductsCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(load_cuda_plugin().loaded);
    at::manual_seed(1);
    at::globalContext().setDeterministicAlgorithms(false, false);
  }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }

  static Tensor random(at::IntArrayRef shape) {
    return at::randn(shape, at::device(at::kCUDA).dtype(at::kBFloat16));
  }
};

// Without measurements the library's first way is taken, whatever it costs.
TEST_F(ProductsCuda, AreFusedWithEachEnd) {
  at::globalContext().setDeterministicAlgorithms(true, false);
  const Tensor x = random({256, 64}), w = random({384, 64}), y = random({256, 384}),
               bias = random({384}), dx = random({256, 64});
  const auto forward = ProductForm::kRightTransposed;
  EXPECT_TRUE(multiply_fused(y, {x, w, forward})) << "plain";
  EXPECT_TRUE(multiply_fused(y, {x, w, forward, ProductEnd::kBias, bias})) << "bias";
  EXPECT_TRUE(multiply_fused(y, {x, w, forward, ProductEnd::kRelu, bias})) << "relu";
  EXPECT_TRUE(multiply_fused(dx, {y, w})) << "backward";
  EXPECT_TRUE(multiply_fused(w, {y, x, ProductForm::kAddedLeftTransposed})) << "weight gradient";
  EXPECT_TRUE(multiply_fused(w, {y, x, ProductForm::kLeftTransposed})) << "written";
}

TEST_F(ProductsCuda, OfStacksAreFused) {
  const Tensor x = random({4, 256, 64}), w = random({4, 384, 64}), y = random({4, 256, 384});
  EXPECT_TRUE(multiply_fused(y, {x, w, ProductForm::kRightTransposed}));
  EXPECT_TRUE(multiply_fused(x, {y, w}));
  EXPECT_TRUE(multiply_fused(w, {y, x, ProductForm::kAddedLeftTransposed}));
  EXPECT_TRUE(multiply_fused(w, {y, x, ProductForm::kLeftTransposed}));
}

// Rows of an odd length or at odd places cannot be loaded in vectors; other types are libtorch's.
TEST_F(ProductsCuda, ThatDoNotFitAreLeftAlone) {
  const auto refused = [](const Tensor& y, const FusedProduct& product) {
    const Tensor before = y.clone();
    return !multiply_fused(y, product) && at::equal(y, before);
  };
  const auto forward = ProductForm::kRightTransposed;
  EXPECT_TRUE(refused(random({32, 33}), {random({32, 64}), random({33, 64}), forward}));
  EXPECT_TRUE(refused(random({32, 40}), {random({32, 63}), random({40, 63}), forward}));
  EXPECT_TRUE(
      refused(random({32, 40}), {random({32, 72}).narrow(1, 1, 64), random({40, 64}), forward}));
  EXPECT_TRUE(refused(random({32, 40}), {random({64, 32}).t(), random({40, 64}), forward}));
  EXPECT_TRUE(refused(random({0, 40}), {random({0, 64}), random({40, 64}), forward}));
  EXPECT_TRUE(refused(random({32, 40}), {random({32, 56}), random({40, 64}), forward}));
  EXPECT_TRUE(
      refused(random({32, 40}).to(at::kFloat), {random({32, 64}), random({40, 64}), forward}));
}

// Large enough to be measured at first.
TEST_F(ProductsCuda, AreRecordedInAGraph) {
  const int64_t rows = 2048, width = 512, inner = 2048;
  const Tensor x = random({rows, width}), dy = random({rows, width}), up = random({inner, width}),
               up_bias = random({inner}), down = random({width, inner}),
               down_bias = random({width});
  const std::vector<Tensor> start = {random({inner, width}), random({inner}),
                                     random({width, inner}), random({width})};
  std::vector<Tensor> sums;
  for (const Tensor& sum : start) sums.push_back(sum.clone());
  const auto reset = [&] {
    for (size_t i = 0; i < sums.size(); ++i) sums[i].copy_(start[i]);
  };
  Tensor y, dx;
  const auto compute = [&] {
    const Tensor active = multiply_transposed(x, up, up_bias, Activation::kRelu);
    y = multiply_transposed(active, down, down_bias);
    add_weight_gradients(sums[2], sums[3], dy, active);
    const Tensor dactive = multiply_weight_masked(dy, down, active, sums[1]);
    add_weight_gradients(sums[0], {}, dactive, x);
    dx = multiply_weight(dactive, up);
  };
  compute();  // chooses the ways
  reset();
  compute();
  compute();
  std::vector<Tensor> expected = {y, dx};
  for (const Tensor& sum : sums) expected.push_back(sum.clone());

  at::zeros({1}, x.options()).item();  // all is done before the graph, which is on another stream
  experts::CudaGraph graph(compute);
  reset();
  y.zero_();
  dx.zero_();
  at::zeros({1}, x.options()).item();
  graph.replay();
  graph.replay();
  EXPECT_TRUE(at::equal(y, expected[0]));
  EXPECT_TRUE(at::equal(dx, expected[1]));
  for (size_t i = 0; i < sums.size(); ++i) {
    EXPECT_TRUE(at::equal(sums[i], expected[2 + i])) << i;
  }
}

}  // namespace
}  // namespace ballast::kernels
