// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "ballast/kernels/cuda_plugin.h"
#include "ballast/kernels/find_op.h"
#include "tests/kernels/twins.h"

namespace ballast::kernels {
namespace {

using at::Tensor;
using test::Case;
using test::dtype_name;
using torch::autograd::backward;

struct Shape {
  int64_t rows, context, heads, head;
  int64_t width() const { return heads * head; }
};

// The definition, with libtorch's differentiable operations.
Tensor plain_attention(const Tensor& qkv, const Shape& s) {
  const auto parts = qkv.view({s.rows, s.context, 3, s.heads, s.head}).permute({2, 0, 3, 1, 4});
  const Tensor mask = at::ones({s.context, s.context}, qkv.options().dtype(at::kBool)).tril();
  const Tensor scores =
      at::matmul(parts[0], parts[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(s.head));
  const Tensor mixed = at::matmul(at::softmax(scores.masked_fill(~mask, -1e30), -1), parts[2]);
  return mixed.transpose(1, 2).reshape({s.rows * s.context, s.width()});
}

class CausalAttention : public test::Twins {
 protected:
  // A copy in double, on the device: the twin of a long context would take long on a CPU.
  static Tensor exact(const Tensor& x) { return x.detach().to(at::kDouble, false, true); }

  void expect_close(const Tensor& got, const Tensor& want, const char* what) const {
    ASSERT_EQ(got.sizes(), want.sizes()) << what;
    const double scale = exact(want).abs().max().item<double>() + 1e-30;
    EXPECT_LE((exact(got) - exact(want)).abs().max().item<double>() / scale, GetParam().tolerance)
        << what;
  }

  void expect_twin(const Shape& s) const {
    SCOPED_TRACE(::testing::Message()
                 << s.rows << " x " << s.context << ", " << s.heads << " heads of " << s.head);
    Tensor qkv = random({s.rows * s.context, 3 * s.width()});
    Tensor twin = exact(qkv).requires_grad_();
    qkv.requires_grad_();
    const Tensor mixed = causal_attention(qkv, s.rows, {s.heads, s.heads, s.head}),
                 wanted = plain_attention(twin, s);
    expect_close(mixed, wanted, "result");
    EXPECT_TRUE(mixed.is_contiguous());
    // Gradients of another layout than the result's too.
    const Tensor d = random({s.width(), s.rows * s.context}).t();
    backward({mixed}, {d});
    backward({wanted}, {exact(d)});
    // Relative to all of it: where a token sees itself alone, that by queries and keys is zero.
    expect_close(qkv.grad(), twin.grad(), "gradient");
  }
};

TEST_P(CausalAttention, EqualsItsTwin) {
  for (const Shape& s :
       {Shape{3, 11, 2, 4}, Shape{1, 1, 2, 64}, Shape{5, 1, 1, 8}, Shape{2, 7, 3, 64},
        Shape{1, 129, 2, 128}, Shape{2, 33, 2, 12}, Shape{1, 65, 2, 256}}) {
    expect_twin(s);
  }
}

TEST_P(CausalAttention, EqualsItsTwinForWholeTiles) {
  for (const Shape& s :
       {Shape{2, 64, 2, 64}, Shape{1, 256, 4, 128}, Shape{3, 192, 1, 32}, Shape{1, 128, 3, 40},
        Shape{2, 64, 2, 256}, Shape{2, 32, 2, 16}, Shape{1, 96, 2, 48}, Shape{1, 1024, 1, 64}}) {
    expect_twin(s);
  }
}

// Scores far apart, as where one key has it all, and one that is not a number.
TEST(Attention, TilesOnTheCpuBearHugeScoresAndHandOnWhatIsNotANumber) {
  at::manual_seed(2);
  const Tensor qkv = at::randn({2 * 64, 3 * 32}) * 300;
  Tensor values = qkv.clone().requires_grad_();
  const Tensor mixed = causal_attention(values, 2, {2, 2, 16});
  backward({mixed}, {at::ones_like(mixed)});
  EXPECT_TRUE(mixed.isfinite().all().item<bool>() && values.grad().isfinite().all().item<bool>());
  Tensor broken = qkv.clone();
  broken[40][3] = std::nan("");
  EXPECT_TRUE(causal_attention(broken, 2, {2, 2, 16})[40][0].isnan().item<bool>());
}

TEST_P(CausalAttention, IsTheSameWithoutAWayBack) {
  const Tensor qkv = random({2 * 64, 3 * 2 * 64});
  const Tensor mixed = causal_attention(qkv, 2, {2, 2, 64});
  EXPECT_FALSE(mixed.requires_grad());
  expect_close(mixed, causal_attention(qkv.detach().requires_grad_(), 2, {2, 2, 64}), "result");
}

TEST_P(CausalAttention, RefusesWhatIsNotDivisible) {
  EXPECT_THROW(causal_attention(random({6, 24}), 4, {2, 2, 4}), c10::Error);
  EXPECT_THROW(causal_attention(random({6, 24}), 2, {3, 2, 4}), c10::Error);
}

// On the CPU the kernels are those libtorch takes itself: the gradient differs in how it is put
// together alone.
TEST(Attention, IsLibtorchsToTheBitOnTheCpu) {
  at::manual_seed(1);
  const Tensor qkv = at::randn({2 * 33, 3 * 24}).requires_grad_(), d = at::randn({2 * 33, 24});
  const Tensor mixed = causal_attention(qkv, 2, {3, 3, 8});
  backward({mixed}, {d});
  const Tensor gradient = qkv.grad().clone();
  qkv.mutable_grad().reset();
  const auto [queries, keys, values] = split_heads(qkv, 2, {3, 3, 8});
  const Tensor wanted =
      at::scaled_dot_product_attention(queries, keys, values, std::nullopt, 0.0, true)
          .transpose(1, 2)
          .reshape({2 * 33, 24});
  backward({wanted}, {d});
  EXPECT_TRUE(at::equal(mixed, wanted) && at::equal(gradient, qkv.grad()));
}

class CausalAttentionOfATraining : public CausalAttention {};

TEST_P(CausalAttentionOfATraining, EqualsItsTwin) {
  expect_twin({2, 1024, 12, 64});
  expect_twin({2, 1024, 16, 128});
}

TEST_P(CausalAttentionOfATraining, GivesTheSameBitsInDeterministicRuns) {
  struct Deterministic {
    Deterministic() { at::globalContext().setDeterministicAlgorithms(true, false); }
    ~Deterministic() { at::globalContext().setDeterministicAlgorithms(false, false); }
  } deterministic;
  const Tensor qkv = random({2 * 1024, 3 * 768}).requires_grad_(), d = random({2 * 1024, 768});
  std::vector<Tensor> gradients;
  for (int i = 0; i < 3; ++i) {
    qkv.mutable_grad().reset();
    backward({causal_attention(qkv, 2, {12, 12, 64})}, {d});
    gradients.push_back(qkv.grad().clone());
  }
  EXPECT_TRUE(at::equal(gradients[0], gradients[1]) && at::equal(gradients[0], gradients[2]));
}

// The gradients by queries, keys and values, each where it belongs in one tensor, are those that
// libtorch's operation writes into three.
TEST(AttentionGradientCuda, IsWrittenIntoOneTensor) {
  ASSERT_TRUE(load_cuda_plugin().loaded);
  const auto op =
      find_op<bool(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                   const Tensor&, const Tensor&, const Tensor&, const Tensor&)>(
          "ballast::attention_gradient");
  for (const Shape& s : {Shape{2, 128, 3, 64}, Shape{2, 1024, 16, 128}, Shape{1, 64, 1, 8}}) {
    SCOPED_TRACE(::testing::Message() << s.context << ", " << s.heads << " heads of " << s.head);
    const Heads heads{s.heads, s.heads, s.head};
    const auto options = at::device(at::kCUDA).dtype(at::kBFloat16);
    const Tensor qkv = at::randn({s.rows * s.context, 3 * s.width()}, options);
    const auto [q, k, v] = split_heads(qkv, s.rows, heads);
    const auto mixed = at::_scaled_dot_product_cudnn_attention(q, k, v, std::nullopt, true, 0.0,
                                                               /*is_causal=*/true);
    const Tensor d = at::randn_like(std::get<0>(mixed));
    const auto [dq, dk, dv] = at::_scaled_dot_product_cudnn_attention_backward(
        d, q, k, v, std::get<0>(mixed), std::get<1>(mixed), std::get<6>(mixed), std::get<7>(mixed),
        {}, {}, {}, s.context, s.context, 0.0, /*is_causal=*/true);
    const Tensor dqkv = at::full_like(qkv, std::nan(""));
    const auto [to_q, to_k, to_v] = split_heads(dqkv, s.rows, heads);
    ASSERT_TRUE(op.call(d, q, k, v, std::get<0>(mixed), std::get<1>(mixed), to_q, to_k, to_v));
    // The order of its sums varies: last bits of bf16 do.
    for (const auto& [got, want] : {std::pair(to_q, dq), {to_k, dk}, {to_v, dv}}) {
      const Tensor difference = got.to(at::kDouble) - want.to(at::kDouble);
      EXPECT_LE(difference.norm().item<double>(),
                2e-3 * want.to(at::kDouble).norm().item<double>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, CausalAttention,
                         ::testing::Values(Case{at::kCPU, at::kDouble, 1e-12},
                                           Case{at::kCPU, at::kFloat, 1e-5}),
                         dtype_name);
// In 16 bits the weights of values, their gradients and the results are each rounded: by up to 2^-9
// for bf16 and 2^-12 for fp16, three or four of them in a row, and sums over the context of such.
INSTANTIATE_TEST_SUITE_P(Cuda, CausalAttention,
                         ::testing::Values(Case{at::kCUDA, at::kDouble, 1e-12},
                                           Case{at::kCUDA, at::kFloat, 1e-5},
                                           Case{at::kCUDA, at::kHalf, 2.5e-3},
                                           Case{at::kCUDA, at::kBFloat16, 2e-2}),
                         dtype_name);
INSTANTIATE_TEST_SUITE_P(Cuda, CausalAttentionOfATraining,
                         ::testing::Values(Case{at::kCUDA, at::kBFloat16, 2e-2}), dtype_name);

}  // namespace
}  // namespace ballast::kernels
