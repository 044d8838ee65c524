// SPDX-License-Identifier: Apache-2.0
// On a machine with a GPU: Sparsely Gated and Switch layers there against those of the CPU.
#include <gtest/gtest.h>

#include "ballast/experts/expert_layer.h"
#include "tests/experts/layer_on_gpu.h"
#include "tests/support/lone_worker.h"
#include "tests/support/stalled_gpu.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using test::compute;
using test::Layer;
using test::LayerShape;
using test::lone_worker;
using test::on_gpu;
using test::Outcome;
using test::random_rows;

class GateLayerCuda : public test::OnGpu {};

std::vector<LayerShape> shapes() {
  std::vector<LayerShape> all;
  for (const char* router : {"switch", "sparsely_gated"}) {
    for (const double capacity : {-1.0, 0.0}) {
      all.push_back({.router = router, .capacity = capacity});
      all.push_back(
          {.experts = 5, .groups = 3, .tokens = 3 * 7, .router = router, .capacity = capacity});
      all.push_back(
          {.experts = 16, .groups = 2, .tokens = 2 * 250, .router = router, .capacity = capacity});
    }
  }
  for (const double capacity : {-1.0, 0.0})
    all.push_back({.router = "sparsely_gated", .capacity = capacity, .second_expert = "random"});
  return all;
}

std::string name_of(const LayerShape& shape) {
  return fmt::format("{}, capacity {}, {} experts, {} groups, {} tokens, second {}", shape.router,
                     shape.capacity, shape.experts, shape.groups, shape.tokens,
                     shape.second_expert);
}

TEST_F(GateLayerCuda, ComputesInTrainingWhatTheCpuComputes) {
  for (const LayerShape& shape : shapes()) {
    SCOPED_TRACE(name_of(shape));
    Layer cpu(shape, test::lone_worker()),
        gpu(shape, test::lone_worker(), test::on_gpu(at::kDouble));
    const Tensor h = test::random_rows(shape.tokens, 1), dy = test::random_rows(shape.tokens, 2);
    const Outcome expected = test::compute(cpu, h, dy, cpu.routing());
    test::expect_near(test::compute(gpu, h, dy, gpu.routing()), expected);
    const RoutingStats on_cpu = cpu.layer.router().take_stats(),
                       there = gpu.layer.router().take_stats();
    for (const RoutingSum count :
         {kSumOfTokens, kSumOfGroups, kSumOfChoices, kSumOfDropped, kSumOfPassedBy})
      EXPECT_EQ(there.sum(count), on_cpu.sum(count));
    EXPECT_NEAR(there.sum(kSumOfBalance), on_cpu.sum(kSumOfBalance), 1e-12);
    EXPECT_NEAR(there.sum(kSumOfGates), on_cpu.sum(kSumOfGates), 1e-11);
  }
}

TEST_F(GateLayerCuda, RoutesAtTestTimeAsTheCpuDoes) {
  for (const char* router : {"switch", "sparsely_gated"}) {
    const LayerShape shape{.experts = 8, .tokens = 1000, .router = router};
    Layer cpu(shape, test::lone_worker()),
        gpu(shape, test::lone_worker(), test::on_gpu(at::kDouble));
    const Tensor h = test::random_rows(shape.tokens, 3), dy = test::random_rows(shape.tokens, 4);
    const Routing greedy{.mode = RoutingMode::kGreedy};
    test::expect_near(test::compute(gpu, h, dy, greedy), test::compute(cpu, h, dy, greedy));
  }
}

// Draws of second experts are left out: rounding may decide one.
std::vector<LayerShape> shapes_without_draws() {
  std::vector<LayerShape> all = shapes();
  std::erase_if(
      all, [](const LayerShape& shape) { return std::string(shape.second_expert) == "random"; });
  return all;
}

TEST_F(GateLayerCuda, IsPreciseInFp32) {
  test::expect_precise(shapes_without_draws(), test::kFp32);
}

TEST_F(GateLayerCuda, IsPreciseInBf16) {
  test::expect_precise(shapes_without_draws(), test::kBf16);
}

// With a capacity all sizes are known beforehand; without one, where a worker is alone, too.
TEST_F(GateLayerCuda, NeverWaitsForTheGpuInTraining) {
  for (const LayerShape& shape : shapes()) {
    SCOPED_TRACE(name_of(shape));
    Layer l(shape, test::lone_worker(), test::on_gpu(at::kBFloat16));
    const auto options = l.table.working().options();
    const Tensor x = test::random_rows(shape.tokens, 12).to(options).requires_grad_(),
                 dy = test::random_rows(shape.tokens, 13).to(options);
    const auto forward = [&] { return l.layer.forward(x, l.routing()); };
    const auto backward = [&](const Tensor& y) { torch::autograd::grad({y}, {x}, {dy}); };
    for (int i = 0; i < 2; ++i) backward(forward());
    test::StalledGpu gpu;
    const Tensor y = forward();
    EXPECT_TRUE(gpu.stands()) << "forward";
    backward(y);
    EXPECT_TRUE(gpu.stands()) << "backward";
  }
}

}  // namespace
}  // namespace ballast::experts
