// SPDX-License-Identifier: Apache-2.0
// On a machine with a GPU: the BASE layer there against that of the CPU.
#include <gtest/gtest.h>

#include "ballast/experts/assigner.h"
#include "ballast/experts/expert_layer.h"
#include "ballast/experts/shuffle.h"
#include "tests/experts/cuda_graph.h"
#include "tests/experts/layer_on_gpu.h"
#include "tests/support/lone_worker.h"
#include "tests/support/stalled_gpu.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using test::compute;
using test::expect_near;
using test::home;
using test::kBf16;
using test::kFp32;
using test::Layer;
using test::LayerShape;
using test::lone_worker;
using test::MemoryTape;
using test::on_gpu;
using test::Outcome;
using test::random_rows;
using test::StalledGpu;

class BaseLayerCuda : public test::OnGpu {};

std::vector<LayerShape> shapes() {
  return {{},
          {.shuffle = false},
          {.experts = 5, .groups = 3, .tokens = 3 * 7},     // remainders
          {.experts = 16, .groups = 2, .tokens = 2 * 10},   // more experts than tokens
          {.experts = 8, .groups = 4, .tokens = 4 * 250}};  // 250 of 8, and of 4
}

std::string name_of(const LayerShape& shape) {
  return fmt::format("{} experts, {} groups, {} tokens{}", shape.experts, shape.groups,
                     shape.tokens, shape.shuffle ? "" : ", not shuffled");
}

TEST_F(BaseLayerCuda, ComputesInTrainingWhatTheCpuComputes) {
  for (const LayerShape& shape : shapes()) {
    SCOPED_TRACE(name_of(shape));
    Layer cpu(shape, lone_worker()), gpu(shape, lone_worker(), test::on_gpu(at::kDouble));
    ASSERT_TRUE(at::equal(test::home(gpu.table.working()), cpu.table.working()));
    const Tensor h = random_rows(shape.tokens, 1), dy = random_rows(shape.tokens, 2);
    MemoryTape tape;
    const Outcome expected = test::compute(cpu, h, dy, cpu.routing(&tape));
    ASSERT_EQ(tape.replayed, 0);
    test::expect_near(test::compute(gpu, h, dy, gpu.routing(&tape)), expected);
    ASSERT_EQ(tape.replayed, 1);
    // Both find the optimum, and with random scores there is one only: no tape is needed.
    test::expect_near(test::compute(gpu, h, dy, gpu.routing()), expected);
  }
}

TEST_F(BaseLayerCuda, RoutesAtTestTimeAsTheCpuDoes) {
  for (const LayerShape& shape : {LayerShape{.tokens = 61}, {.experts = 8, .tokens = 1000}}) {
    Layer cpu(shape, lone_worker()), gpu(shape, lone_worker(), test::on_gpu(at::kDouble));
    const Tensor prices = at::linspace(-1, 1, shape.experts, at::kDouble);
    cpu.layer.router().prices()->set(prices);
    gpu.layer.router().prices()->set(prices);
    const Tensor h = random_rows(shape.tokens, 3), dy = random_rows(shape.tokens, 4);
    std::vector<Tensor> choices;
    for (const auto mode : {RoutingMode::kGreedy, RoutingMode::kPriced, RoutingMode::kBalanced}) {
      SCOPED_TRACE(fmt::format("{}, {}", name_of(shape), routing_name(mode)));
      SeenRoute on_cpu, on_gpu;
      const Outcome expected = test::compute(
          cpu, h, dy, {.mode = mode, .seen = [&](const SeenRoute& s) { on_cpu = s; }});
      const Outcome got = test::compute(
          gpu, h, dy, {.mode = mode, .seen = [&](const SeenRoute& s) { on_gpu = s; }});
      test::expect_near(got, expected);
      EXPECT_TRUE(on_gpu.scores.is_cuda());
      EXPECT_TRUE(at::equal(on_gpu.expert_of_token.cpu(), on_cpu.expert_of_token));
      choices.push_back(on_cpu.expert_of_token);
    }
    EXPECT_FALSE(at::equal(choices[0], choices[1])) << "prices matter";
    EXPECT_FALSE(at::equal(choices[0], choices[2])) << "and so does balance";
  }
}

TEST_F(BaseLayerCuda, IsPreciseInFp32) { test::expect_precise(shapes(), test::kFp32); }
TEST_F(BaseLayerCuda, IsPreciseInBf16) { test::expect_precise(shapes(), test::kBf16); }

// The tokens in the order in which they are assigned, group by group.
Tensor mixed(const Layer& l, const Tensor& h) {
  if (!l.layer.router().shuffles(l.routing())) return h;
  const Shuffle mix =
      shuffle_of(*l.routing().training, l.layer.place(),
                 {.groups = l.shape.groups, .tokens_of_group = l.shape.tokens / l.shape.groups},
                 {.step = l.routing().training->step});
  return h.index_select(0, mix.order.row_of_position);
}

TEST_F(BaseLayerCuda, AssignsAsWellAsTheCpu) {
  for (LayerShape shape : shapes()) {
    shape.tokens *= 8;
    for (const double start : {0.0, 3.0}) {  // the size of prices to start with
      SCOPED_TRACE(fmt::format("{}, prices {}", name_of(shape), start));
      Layer cpu(shape, lone_worker()), gpu(shape, lone_worker(), test::on_gpu(at::kDouble));
      gpu.layer.router().prices()->set(start * at::linspace(-1, 1, shape.experts, at::kDouble));
      const Tensor h = random_rows(shape.tokens, 7);
      MemoryTape tape;
      gpu.layer.forward(h.cuda(), gpu.routing(&tape));
      const Tensor experts = tape.replay({5, 1, 1, 0}, shape.groups).cpu().to(at::kLong);
      const Tensor embeddings =
          cpu.table.view(cpu.table.master(), cpu.table.segment("layer.1.expert_embeddings"));
      const Tensor scores = at::mm(mixed(cpu, h), embeddings.t())
                                .view({shape.groups, -1, shape.experts})
                                .to(at::kFloat);
      const auto statuses = read_status(Assigner({}).assign(scores));
      for (int64_t group = 0; group < shape.groups; ++group) {
        const Tensor chosen = experts[group];
        const Tensor loads = at::bincount(chosen, {}, shape.experts);
        EXPECT_LE((loads.max() - loads.min()).item<int64_t>(), 1);
        const Tensor worth = scores[group].gather(1, chosen.unsqueeze(1)).to(at::kDouble);
        // Both are exact to 1e-9 of the scores' size; a score may be rounded otherwise there.
        const double size = scores[group].abs().amax(1).sum().item<double>();
        EXPECT_NEAR(worth.sum().item<double>(), statuses[static_cast<size_t>(group)].primal,
                    0x1p-23 * size);
      }
    }
  }
}

TEST_F(BaseLayerCuda, TokensThatAreNotFiniteAreForTheLossToShow) {
  for (const at::ScalarType working : {at::kDouble, at::kBFloat16}) {
    for (const double value : {double{NAN}, double{INFINITY}}) {
      Layer l({.groups = 2, .tokens = 40}, lone_worker(), test::on_gpu(working));
      Tensor h = random_rows(40, 8);
      h[3].fill_(value);
      const Tensor others = at::arange(40).ne(3);
      for (int i = 0; i < 3; ++i) {  // each checks the assignment before
        const Outcome got = test::compute(l, h, random_rows(40, 9), l.routing());
        EXPECT_TRUE(got.y[3].isnan().any().item<bool>());
        EXPECT_TRUE(got.y.index({others}).isfinite().all().item<bool>());
        EXPECT_TRUE(got.dh.index({others}).isfinite().all().item<bool>());
        EXPECT_FALSE(got.weights.isfinite().all().item<bool>());
      }
      for (int i = 0; i < 2; ++i) {
        const Outcome got = test::compute(l, at::full_like(h, value), h, l.routing());
        EXPECT_TRUE(got.y.isnan().any(1).all().item<bool>());
      }
    }
  }
}

// With the auction, which goes as on the CPU and leaves a gap.
TEST_F(BaseLayerCuda, TellsWhatItSaw) {
  const LayerShape shape{.experts = 8, .groups = 2, .tokens = 512, .solver = "auction"};
  Layer cpu(shape, lone_worker()), gpu(shape, lone_worker(), test::on_gpu(at::kDouble));
  const Tensor first = random_rows(shape.tokens, 10);
  const auto seen = [](Layer& l, const Tensor& h) {
    l.layer.forward(h.to(l.table.working().device()), l.routing());
    return l.layer.router().take_stats();
  };
  const RoutingStats expected = seen(cpu, first), got = seen(gpu, first);
  EXPECT_EQ(got.sum(kSumOfTokens), 512);
  EXPECT_EQ(got.sum(kSumOfGroups), 2);
  EXPECT_EQ(got.sum(kSumOfBest), expected.sum(kSumOfBest));
  EXPECT_LT(got.sum(kSumOfBest), 512);
  EXPECT_LE((test::home(got.price_sum()) - expected.price_sum()).abs().max().item<double>(), 1e-12);
  EXPECT_GT(got.assigning.seconds(), 0);
  const double gap = cpu.layer.router().largest_gap(expected);
  EXPECT_GT(gap, 0);
  // Sums over 256 tokens in another order.
  EXPECT_NEAR(gpu.layer.router().largest_gap(got), gap, 1e-12);
  EXPECT_EQ(gpu.layer.router().take_stats().sum(kSumOfTokens), 0);
}

TEST_F(BaseLayerCuda, AWaitForTheStalledGpuIsNoticed) {
  const Tensor x = at::ones({1}, at::kCUDA);
  x.add(x).item<float>();
  StalledGpu gpu(std::chrono::milliseconds(200));
  const Tensor y = x.add(x);
  EXPECT_TRUE(gpu.stands());
  EXPECT_EQ(y.item<float>(), 2);
  EXPECT_FALSE(gpu.stands());
}

TEST_F(BaseLayerCuda, NeverWaitsForTheGpuInTraining) {
  for (const LayerShape& shape : shapes()) {
    SCOPED_TRACE(name_of(shape));
    Layer l(shape, lone_worker(), test::on_gpu(at::kBFloat16));
    const auto options = l.table.working().options();
    const Tensor x = random_rows(shape.tokens, 12).to(options).requires_grad_(),
                 dy = random_rows(shape.tokens, 13).to(options);
    const auto forward = [&] {  // as after an update, with new start prices
      l.layer.router().prices()->set(at::linspace(-1, 1, shape.experts, at::kDouble));
      return l.layer.forward(x, l.routing());
    };
    const auto backward = [&](const Tensor& y) { torch::autograd::grad({y}, {x}, {dy}); };
    for (int i = 0; i < 2; ++i) backward(forward());
    StalledGpu gpu;
    const Tensor y = forward();
    EXPECT_TRUE(gpu.stands()) << "forward";
    backward(y);
    EXPECT_TRUE(gpu.stands()) << "backward";
  }
}

// What no graph can hold: the keys of the shuffle, which the host makes; the solver's status and
// the time that it took, which the host reads later (so take_stats() is not called here).
TEST_F(BaseLayerCuda, WithAKnownAssignmentCanBeRecordedInAGraph) {
  const LayerShape shape{.experts = 5, .groups = 3, .tokens = 3 * 7, .shuffle = false};
  Layer l(shape, lone_worker(), test::on_gpu(at::kBFloat16));
  const auto options = l.table.working().options();
  const Tensor x = random_rows(shape.tokens, 14).to(options).requires_grad_(),
               dy = random_rows(shape.tokens, 15).to(options);
  MemoryTape tape;
  Tensor y, dx;
  const auto compute_there = [&] {
    l.table.gradient().zero_();
    const Tensor result = l.layer.forward(x, l.routing(&tape));
    y = result.detach();
    dx = torch::autograd::grad({result}, {x}, {dy})[0];
  };
  compute_there();
  const Tensor expected_y = y, expected_dx = dx, expected = l.table.gradient().clone();
  CudaGraph graph(compute_there);
  EXPECT_EQ(tape.replayed, 2);
  for (const Tensor& result : {y, dx, l.table.gradient()}) result.zero_();
  at::zeros({1}, options).item();  // all are zero before the graph, which is on another stream
  graph.replay();
  EXPECT_TRUE(at::equal(y, expected_y));
  EXPECT_TRUE(at::equal(dx, expected_dx));
  EXPECT_TRUE(at::equal(l.table.gradient(), expected));
}

}  // namespace
}  // namespace ballast::experts
