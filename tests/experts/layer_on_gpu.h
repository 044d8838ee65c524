// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/csrc/autograd/autograd.h>

#include "ballast/kernels/cuda_plugin.h"
#include "tests/experts/layer_setting.h"
#include "tests/support/lone_worker.h"

namespace ballast::test {

class OnGpu : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(kernels::load_cuda_plugin().loaded); }
};

inline parameters::TableOptions on_gpu(at::ScalarType working) {
  return {.device = at::Device(at::kCUDA, 0),
          .working = working,
          .master = working == at::kDouble ? at::kDouble : at::kFloat};
}

inline at::Tensor home(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU, at::kDouble);
}

// What a layer gives, on the CPU in double.
struct Outcome {
  at::Tensor y, dh, weights;  // dh, weights: gradients of the tokens and, flat, of all parameters
};

// Forward and backward, where the layer is and in its type.
inline Outcome compute(Layer& l, const at::Tensor& h, const at::Tensor& dy,
                       const experts::Routing& routing) {
  const auto options = l.table.working().options();
  at::Tensor x = h.to(options).detach().requires_grad_();
  l.table.gradient().zero_();
  const at::Tensor y = l.layer.forward(x, routing);
  torch::autograd::backward({y}, {dy.to(options)});
  return {home(y), home(x.grad()), home(l.table.gradient())};
}

// Sums of up to a few thousand products in double, in another order.
inline void expect_near(const Outcome& got, const Outcome& expected) {
  EXPECT_LE((got.y - expected.y).abs().max().item<double>(), 1e-12);
  EXPECT_LE((got.dh - expected.dh).abs().max().item<double>(), 1e-12);
  EXPECT_LE((got.weights - expected.weights).abs().max().item<double>(), 1e-11);
}

// Errors of a row, relative to it.
inline at::Tensor row_errors(const at::Tensor& got, const at::Tensor& expected) {
  return (got - expected).norm(2, 1) / expected.norm(2, 1);
}

inline double relative_error(const at::Tensor& got, const at::Tensor& expected) {
  return ((got - expected).norm() / expected.norm()).item<double>();
}

struct Precision {
  at::ScalarType working;
  double bound;  // of a few roundings
  double
      of_norms;  // of gradients, where units whose input is within rounding of zero are on or off
};
// A rounding is 2^-24. Of the 24000 units of the largest shape, none is that close to zero.
constexpr Precision kFp32{at::kFloat, 0x1p-22, 0x1p-20};
// A rounding is 2^-9. One unit in a thousand is on or off: 3% of a gradient's norm and more (of
// such a stack in simulated bf16 1 to 3%, with the exact units on 0.4%).
constexpr Precision kBf16{at::kBFloat16, 0x1p-7, 0x1p-3};

// Against the CPU in double, with weights and tokens as rounded, and the same choices of experts.
inline void expect_precise(const std::vector<LayerShape>& shapes, const Precision& precision) {
  for (const LayerShape& shape : shapes) {
    SCOPED_TRACE(fmt::format("{}, capacity {}, {} experts, {} groups, {} tokens", shape.router,
                             shape.capacity, shape.experts, shape.groups, shape.tokens));
    Layer cpu(shape, lone_worker()), gpu(shape, lone_worker(), on_gpu(precision.working));
    cpu.table.working().copy_(gpu.table.working());
    const auto rounded = [&](uint64_t seed) {
      return random_rows(shape.tokens, seed).to(precision.working).to(at::kDouble);
    };
    const at::Tensor h = rounded(5), dy = rounded(6);
    MemoryTape tape;
    const Outcome expected = compute(cpu, h, dy, cpu.routing(&tape));
    const Outcome got = compute(gpu, h, dy, gpu.routing(&tape));
    // The largest error is of a row whose terms cancel each other.
    EXPECT_LE(row_errors(got.y, expected.y).max().item<double>(), 8 * precision.bound);
    EXPECT_LE(row_errors(got.dh, expected.dh).median().item<double>(), precision.bound);
    EXPECT_LE(relative_error(got.dh, expected.dh), precision.of_norms);
    EXPECT_LE(relative_error(got.weights, expected.weights), precision.of_norms);
  }
}

}  // namespace ballast::test
