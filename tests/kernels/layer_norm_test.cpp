// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/layer_norm.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/kernels/twins.h"

namespace ballast::kernels {
namespace {

using at::Tensor;
using test::Case;
using test::dtype_name;
using torch::autograd::backward;

struct Shape {
  int64_t rows, width;
};
// One warp, several and all of a block for a row; rows of few packs, of odd sizes, too wide; none.
constexpr Shape kShapes[] = {{21, 19},     {1, 8},    {3, 24},   {37, 768},   {257, 1024},
                             {1100, 1024}, {1, 1024}, {1, 2048}, {133, 2048}, {65, 4096},
                             {9, 8192},    {5, 8200}, {0, 64},   {50, 1000}};

Tensor plain_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor centred = x - x.mean(1, true);
  return centred / (centred.square().mean(1, true) + 1e-5).sqrt() * weight + bias;
}

class LayerNorms : public test::Twins {
 protected:
  // The gradients that are given, undefined ones left out.
  static void go_back(std::vector<Tensor> results, std::vector<Tensor> gradients) {
    for (size_t i = results.size(); i-- > 0;) {
      if (gradients[i].defined()) continue;
      results.erase(results.begin() + static_cast<int64_t>(i));
      gradients.erase(gradients.begin() + static_cast<int64_t>(i));
    }
    backward(results, gradients);
  }

  // add_layer_norm beside its twin, with gradients by the sum, by the norm, or both.
  void expect_twin(Shape shape, bool by_sum, bool by_normed) const {
    SCOPED_TRACE(::testing::Message() << shape.rows << " x " << shape.width);
    const std::vector<int64_t> size{shape.rows, shape.width};
    Tensor x = (random(size) * 3 + 1).requires_grad_(), change = random(size).requires_grad_();
    const Parameter weight = parameter({shape.width}), bias = parameter({shape.width}),
                    change_bias = parameter({shape.width});
    const Tensor weight_before = exact(weight.gradient), bias_before = exact(bias.gradient),
                 change_before = exact(change_bias.gradient);
    const Tensor dsum = by_sum ? random(size) : Tensor();
    const Tensor dnormed = by_normed ? random(size) : Tensor();
    const auto [sum, normed] = add_layer_norm(x, change, weight, bias, {}, change_bias);
    EXPECT_TRUE(at::equal(sum, x + change)) << "rounded as libtorch does";
    go_back({sum, normed}, {dsum, dnormed});

    // The twin starts from the sum as it was rounded.
    Tensor twin_sum = exact(sum).requires_grad_(), twin_weight = exact(weight.value),
           twin_bias = exact(bias.value);
    twin_weight.requires_grad_();
    twin_bias.requires_grad_();
    const Tensor twin_normed = plain_norm(twin_sum, twin_weight, twin_bias);
    go_back({twin_sum.view_as(twin_sum), twin_normed},
            {by_sum ? exact(dsum) : Tensor(), by_normed ? exact(dnormed) : Tensor()});
    expect_close(normed, twin_normed, "normed");
    expect_close(x.grad(), twin_sum.grad(), "gradient by x");
    EXPECT_TRUE(at::equal(x.grad(), change.grad()));
    const Tensor dweight = by_normed ? twin_weight.grad() : at::zeros_like(twin_weight);
    const Tensor dbias = by_normed ? twin_bias.grad() : at::zeros_like(twin_bias);
    expect_close(weight.gradient, weight_before + dweight, "gradient by the weight", dweight);
    expect_close(bias.gradient, bias_before + dbias, "gradient by the bias", dbias);
    const Tensor dchange = twin_sum.grad().sum(0);
    expect_close(change_bias.gradient, change_before + dchange, "by the change's bias", dchange);
  }
};

TEST_P(LayerNorms, OfASumEqualItsTwin) {
  for (const Shape shape : kShapes) {
    expect_twin(shape, true, true);
    if (HasFailure()) return;
  }
}

TEST_P(LayerNorms, TakeTheGradientsThatAreThere) {
  for (const Shape shape : {Shape{21, 19}, Shape{37, 768}, Shape{133, 2048}}) {
    expect_twin(shape, true, false);
    expect_twin(shape, false, true);
  }
}

TEST_P(LayerNorms, AloneEqualTheirTwin) {
  for (const Shape shape : kShapes) {
    SCOPED_TRACE(::testing::Message() << shape.rows << " x " << shape.width);
    Tensor x = (random({shape.rows, shape.width}) * 3 + 1).requires_grad_();
    const Parameter weight = parameter({shape.width}), bias = parameter({shape.width});
    const Tensor before = exact(weight.gradient);
    const Tensor normed = layer_norm(x, weight, bias), dnormed = random(normed.sizes());
    backward({normed}, {dnormed});
    Tensor twin = exact(x).requires_grad_(), twin_weight = exact(weight.value).requires_grad_();
    const Tensor twin_normed = plain_norm(twin, twin_weight, exact(bias.value));
    backward({twin_normed}, {exact(dnormed)});
    expect_close(normed, twin_normed, "normed");
    expect_close(x.grad(), twin.grad(), "gradient by x");
    expect_close(weight.gradient, before + twin_weight.grad(), "gradient by the weight",
                 twin_weight.grad());
  }
}

TEST_P(LayerNorms, LeaveOutGradientsThatAreNotWanted) {
  const Tensor x = random({37, 768}).requires_grad_(), change = random({37, 768});
  Parameter weight = parameter({768}), bias = parameter({768});
  const Tensor d = random({37, 768});
  backward({add_layer_norm(x, change, weight, bias).normed}, {d});
  const Tensor wanted = x.grad().clone(), bias_sum = bias.gradient.clone();
  for (const bool of_bias : {false, true}) {
    Parameter fresh{bias.value, of_bias ? bias.gradient : Tensor()};
    x.mutable_grad().reset();
    backward({add_layer_norm(x, change, {weight.value, {}}, fresh).normed}, {d});
    EXPECT_TRUE(at::equal(x.grad(), wanted));
    EXPECT_EQ(at::equal(bias.gradient, bias_sum), !of_bias);
  }
}

TEST_P(LayerNorms, GiveTheSameWithAndWithoutASumForTheChangesBias) {
  for (const int64_t width : {768, 1000, 2048}) {
    const Tensor x = random({37, width}).requires_grad_(), change = random({37, width});
    const Tensor d = random({37, width});
    const Tensor values = random({width});
    std::vector<Tensor> gradients;
    for (const bool of_change : {false, true}) {
      const Parameter weight{values, at::zeros_like(values)}, bias{values, at::zeros_like(values)},
          change_bias{values, of_change ? at::zeros_like(values) : Tensor()};
      x.mutable_grad().reset();
      backward({add_layer_norm(x, change, weight, bias, {}, change_bias).normed}, {d});
      gradients.push_back(at::cat({x.grad().view({-1}), weight.gradient, bias.gradient}));
    }
    EXPECT_TRUE(at::equal(gradients[0], gradients[1]));
  }
}

TEST_P(LayerNorms, TakeRowsThatAreApartOrNotOnABoundary) {
  const Tensor wide = random({37, 2 * 768 + 8});
  const Parameter weight = parameter({768}), bias = parameter({768});
  const Tensor whole = wide.narrow(1, 0, 768).contiguous();
  const Tensor wanted = layer_norm(whole, weight, bias);
  EXPECT_TRUE(at::equal(layer_norm(wide.narrow(1, 0, 768), weight, bias), wanted));
  const Tensor moved = at::empty({37 * 768 + 1}, whole.options()).narrow(0, 1, 37 * 768);
  moved.copy_(whole.view({-1}));
  expect_close(layer_norm(moved.view({37, 768}), weight, bias), wanted, "off the boundary");
}

TEST_P(LayerNorms, RefuseWhatDoesNotFit) {
  const Parameter weight = parameter({8}), bias = parameter({8});
  EXPECT_THROW(layer_norm(random({3, 9}), weight, bias), c10::Error);
  EXPECT_THROW(add_layer_norm(random({3, 8}), random({1, 8}), weight, bias), c10::Error);
}

TEST(LayerNorm, OfASumIsAdditionAndNormToTheBitOnTheCpu) {
  at::manual_seed(1);
  const Tensor x = at::randn({33, 20}).requires_grad_(), change = at::randn({33, 20});
  const Parameter weight{at::randn({20}), at::zeros({20})}, bias{at::randn({20}), at::zeros({20})};
  const Tensor dsum = at::randn({33, 20}), dnormed = at::randn({33, 20});
  const auto fused = add_layer_norm(x, change, weight, bias);
  backward({fused.sum, fused.normed}, {dsum, dnormed});
  const Tensor dx = x.grad().clone(), dweight = weight.gradient.clone();
  x.mutable_grad().reset();
  weight.gradient.zero_();
  const Tensor sum = x + change, normed = layer_norm(sum, weight, bias);
  backward({sum, normed}, {dsum, dnormed});
  EXPECT_TRUE(at::equal(fused.sum, sum) && at::equal(fused.normed, normed));
  EXPECT_TRUE(at::equal(dx, x.grad()) && at::equal(dweight, weight.gradient));
}

class LayerNormsOfATraining : public LayerNorms {};

TEST_P(LayerNormsOfATraining, EqualTheirTwin) {
  expect_twin({16384, 1024}, true, true);
  expect_twin({8192, 2048}, true, true);
}

TEST_P(LayerNormsOfATraining, AddUpTheSameBitsEachTime) {
  const Tensor x = random({16384, 1024}).requires_grad_(), change = random({16384, 1024});
  const Tensor d = random({16384, 1024}), weight = random({1024}), bias = random({1024});
  std::vector<Tensor> sums;
  for (int i = 0; i < 3; ++i) {
    const Parameter w{weight, at::zeros_like(weight)}, b{bias, at::zeros_like(bias)},
        c{bias, at::zeros_like(bias)};
    backward({add_layer_norm(x, change, w, b, {}, c).normed}, {d});
    sums.push_back(at::stack({w.gradient, b.gradient, c.gradient}));
  }
  EXPECT_TRUE(at::equal(sums[0], sums[1]) && at::equal(sums[0], sums[2]));
}

INSTANTIATE_TEST_SUITE_P(Cpu, LayerNorms,
                         ::testing::Values(Case{at::kCPU, at::kDouble, 1e-12},
                                           Case{at::kCPU, at::kFloat, 5e-6}),
                         dtype_name);
// Sums of up to 16384 terms in fp32. A result in bf16 is rounded once more, by up to 2^-9; where
// libtorch takes over, the sum of gradients is rounded before and after the addition.
const auto kCudaCases =
    ::testing::Values(Case{at::kCUDA, at::kDouble, 1e-12}, Case{at::kCUDA, at::kFloat, 1e-5},
                      Case{at::kCUDA, at::kBFloat16, 0x1p-8 + 1e-5});
INSTANTIATE_TEST_SUITE_P(Cuda, LayerNorms, kCudaCases, dtype_name);
INSTANTIATE_TEST_SUITE_P(Cuda, LayerNormsOfATraining, kCudaCases, dtype_name);

}  // namespace
}  // namespace ballast::kernels
