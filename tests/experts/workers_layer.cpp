// SPDX-License-Identifier: Apache-2.0
// Run by several workers, which hold other tokens each: see tests/training/workers_test.cpp.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ballast/experts/balanced_slots.h"
#include "ballast/experts/dispatch.h"
#include "tests/comm/workers.h"
#include "tests/experts/layer_on_gpu.h"
#include "tests/experts/layer_setting.h"
#include "tests/support/lone_worker.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using test::everyone;
using test::Layer;
using test::random_rows;

Tensor own_part(const Tensor& all) {
  const int64_t rows = all.size(0) / everyone().size();
  return all.narrow(0, everyone().rank() * rows, rows);
}

void expect_near(const Tensor& got, const Tensor& expected, const std::string& what) {
  // Sums of a few hundred products in double, in another order.
  EXPECT_LE((got - expected).abs().max().item<double>(), 1e-12) << what;
}

// With look-ahead: the router's tokens take part in the shuffle, too.
void todays_frame(config::ExpertsConfig&) {}
void two_experts(config::ExpertsConfig& experts) { experts.per_token = 2; }

// One worker alone has no chunks.
void in_three_chunks(config::ExpertsConfig& experts) {
  config::take_papers_frame(experts);
  experts.chunks = 3;
}
void two_experts_in_chunks(config::ExpertsConfig& experts) {
  experts.per_token = 2;
  experts.chunks = 4;
}

std::vector<test::LayerShape> shapes() {
  return {{.experts = 8, .groups = 8, .tokens = 8 * 16},
          {.experts = 16, .groups = 8, .tokens = 8 * 21},  // 21 tokens for 16 experts
          {.experts = 8, .groups = 8, .tokens = 8 * 3},    // more experts than tokens
          {.experts = 8, .groups = 16, .tokens = 16 * 10, .shuffle = false},
          {.experts = 8, .groups = 8, .tokens = 8 * 16, .router = "switch"},
          {.experts = 16, .groups = 8, .tokens = 8 * 21, .router = "switch", .capacity = 0},
          {.experts = 8, .groups = 16, .tokens = 16 * 10, .router = "sparsely_gated"},
          {.experts = 16, .groups = 8, .tokens = 8 * 21, .router = "sparsely_gated", .capacity = 0},
          {.experts = 8,
           .groups = 8,
           .tokens = 8 * 12,
           .router = "sparsely_gated",
           .second_expert = "random"},
          {.experts = 8, .groups = 8, .tokens = 8 * 16, .frame = todays_frame},
          {.experts = 16, .groups = 8, .tokens = 8 * 21, .frame = two_experts},
          {.experts = 8, .groups = 8, .tokens = 8 * 16, .router = "switch", .frame = todays_frame},
          {.experts = 8,
           .groups = 16,
           .tokens = 16 * 10,
           .router = "sparsely_gated",
           .frame = todays_frame},
          // 8 blocks of 1 to 16 rows, which 3 and 4 need not divide; fewer rows than chunks
          {.experts = 8, .groups = 16, .tokens = 16 * 10, .frame = in_three_chunks},
          {.experts = 16, .groups = 8, .tokens = 8 * 21, .frame = two_experts_in_chunks},
          {.experts = 8, .groups = 8, .tokens = 8 * 3, .frame = in_three_chunks},
          {.experts = 8,
           .groups = 16,
           .tokens = 16 * 10,
           .router = "sparsely_gated",
           .frame = in_three_chunks},
          {.experts = 8,
           .groups = 8,
           .tokens = 8 * 16,
           .router = "switch",
           .capacity = 0,
           .frame = in_three_chunks}};
}

// The layer on all workers is the layer of one that has all tokens and all experts.
TEST(LayerOfWorkers, GivesWhatOneWorkerGives) {
  for (const test::LayerShape& shape : shapes()) {
    SCOPED_TRACE(fmt::format("{} experts, {} tokens", shape.experts, shape.tokens));
    Layer whole(shape, test::lone_worker()), part(shape, everyone());
    const Tensor all = test::random_rows(shape.tokens, 1), dy = test::random_rows(shape.tokens, 2),
                 before = test::random_rows(shape.tokens, 3);
    Tensor h = all.clone().requires_grad_(), own = own_part(all).clone().requires_grad_();
    Tensor earlier = before.clone().requires_grad_(),
           own_earlier = own_part(before).clone().requires_grad_();
    const Tensor expected = whole.layer.forward(h, whole.routing(), earlier);
    const Tensor got = part.layer.forward(own, part.routing(), own_earlier);
    expect_near(got, own_part(expected), "output");
    torch::autograd::backward({expected}, {dy});
    torch::autograd::backward({got}, {own_part(dy)});
    expect_near(own.grad(), own_part(h.grad()), "gradient of the tokens");
    ASSERT_EQ(earlier.grad().defined(), part.layer.looks_ahead());
    if (part.layer.looks_ahead())
      expect_near(own_earlier.grad(), own_part(earlier.grad()), "gradient of the earlier tokens");
    for (const parameters::Segment& segment : part.table.segments()) {
      const Tensor gradient = part.gradient(segment.name);
      if (segment.owner == parameters::Owner::kShared ||
          segment.owner == parameters::Owner::kRouter)
        everyone().all_reduce(gradient, comm::Reduction::kSum, {"shared"});
      expect_near(gradient, whole.gradient(segment.name), segment.name);
    }
  }
}

// Where the workers' tensors are.
parameters::TableOptions here(at::ScalarType working = at::kDouble) {
  return {.device = test::device(),
          .working = working,
          .master = working == at::kDouble ? at::kDouble : at::kFloat};
}

test::LayerShape with_chunks(test::LayerShape shape, int64_t chunks) {
  shape.frame = [frame = shape.frame, chunks](config::ExpertsConfig& experts) {
    frame(experts);
    experts.chunks = chunks;
  };
  return shape;
}

// Forward and backward; gradients of parameters go where those of earlier passes are.
test::Outcome pass(Layer& layer, MatrixGradients gradients) {
  const auto options = layer.table.working().options();
  const auto own = [&](uint64_t seed) {
    return own_part(test::random_rows(layer.shape.tokens, seed)).to(options).clone();
  };
  Tensor h = own(1).requires_grad_();
  Routing routing = layer.routing();
  routing.gradients = gradients;
  const Tensor y = layer.layer.forward(h, routing);
  torch::autograd::backward({y}, {own(2)});
  return {test::home(y), test::home(h.grad()), test::home(layer.table.gradient())};
}

// Products of fewer rows may add in another order, and sums over chunks are rounded after each.
void expect_alike(const test::Outcome& got, const test::Outcome& expected, at::ScalarType working) {
  if (working == at::kDouble) return test::expect_near(got, expected);
  const test::Precision& precision = working == at::kFloat ? test::kFp32 : test::kBf16;
  EXPECT_LE(test::relative_error(got.y, expected.y), precision.bound);
  EXPECT_LE(test::relative_error(got.dh, expected.dh), precision.of_norms);
  EXPECT_LE(test::relative_error(got.weights, expected.weights), precision.of_norms);
}

// Gradients of weights are sums over chunks. What a first pass writes is what later ones add to.
TEST(LayerOfWorkers, InChunksWritesAndAddsGradientsAsInOne) {
  // Without a shuffle, whose time would count as exchanged too. Five chunks differ in size.
  const std::vector<test::LayerShape> shapes{
      {.experts = 8, .groups = 16, .tokens = 16 * 10, .shuffle = false},
      {.experts = 16, .groups = 8, .tokens = 8 * 21, .shuffle = false, .frame = two_experts},
      {.experts = 8,
       .groups = 16,
       .tokens = 16 * 10,
       .shuffle = false,
       .router = "sparsely_gated"}};
  std::vector<at::ScalarType> types{at::kDouble};
  if (test::device().is_cuda()) types = {at::kDouble, at::kFloat, at::kBFloat16};
  for (const test::LayerShape& shape : shapes) {
    for (const at::ScalarType type : types) {
      for (const int64_t chunks : {2, 3, 5}) {
        SCOPED_TRACE(fmt::format("{}, {} experts, {}, {} chunks", shape.router, shape.experts,
                                 at::toString(type), chunks));
        Layer once(shape, everyone(), here(type));
        Layer parts(with_chunks(shape, chunks), everyone(), here(type));
        for (const MatrixGradients gradients : {MatrixGradients::kWritten, MatrixGradients::kAdded})
          expect_alike(pass(parts, gradients), pass(once, gradients), type);
        if (everyone().size() > 1) {
          EXPECT_GT(parts.layer.take_exchange_seconds(), 0);
        }
      }
    }
  }
}

// Counts how often rows are sent or waited for.
class CountingWatch : public step::StepWatch {
 public:
  int64_t communications = 0;

 private:
  void switched(step::StepPart part) override {
    communications += part == step::StepPart::kCommunication ? 1 : 0;
  }
};

int64_t communications_of(const test::LayerShape& shape) {
  Layer layer(shape, everyone(), here());
  CountingWatch watch;
  Routing routing = layer.routing();
  routing.watch = &watch;
  Tensor h = own_part(test::random_rows(shape.tokens, 1)).clone().to(test::device());
  const Tensor y = layer.layer.forward(h.requires_grad_(), routing);
  torch::autograd::backward({y}, {own_part(test::random_rows(shape.tokens, 2)).to(test::device())});
  return watch.communications;
}

// There and back, forward and backward: a chunk is sent, and waited for.
TEST(LayerOfWorkers, SendsEachChunkByItself) {
  test::LayerShape shape{.experts = 8, .groups = 16, .tokens = 16 * 10, .shuffle = false};
  const int64_t once = communications_of(shape);
  shape.frame = in_three_chunks;
  const int64_t in_chunks = communications_of(shape);
  EXPECT_EQ(in_chunks, everyone().size() > 1 ? once - 4 + 4 * 3 * 2 : once);
  // Without a capacity all rows go at once.
  shape.router = "switch";
  shape.capacity = 0;
  const int64_t uneven = communications_of(shape);
  shape.frame = config::take_papers_frame;
  EXPECT_EQ(uneven, communications_of(shape));
}

// Workers of this machine that stand for those of two: neighbours together, or in turn.
std::vector<std::vector<int>> two_machines() {
  const int workers = everyone().size();
  if (workers < 4 || workers % 2 != 0) return {};
  std::vector<int> halves, turns;
  for (int worker = 0; worker < workers; ++worker) {
    halves.push_back(2 * worker / workers);
    turns.push_back(worker % 2);
  }
  return {halves, turns};
}

void expect_same_bits(Layer& straight, Layer& hopping, const Tensor& tokens,
                      const Routing& routing) {
  const Tensor dy = test::random_rows(tokens.size(0), 20 + everyone().rank());
  Tensor h = tokens.clone().requires_grad_(), same = tokens.clone().requires_grad_();
  const Tensor expected = straight.layer.forward(h, routing);
  const Tensor got = hopping.layer.forward(same, routing);
  EXPECT_TRUE(got.equal(expected));
  torch::autograd::backward({expected}, {dy});
  torch::autograd::backward({got}, {dy});
  EXPECT_TRUE(same.grad().equal(h.grad()));
  for (const parameters::Segment& segment : hopping.table.segments())
    EXPECT_TRUE(hopping.gradient(segment.name).equal(straight.gradient(segment.name)))
        << segment.name;
}

TEST(LayerOfWorkers, InTwoHopsHasTheSameBits) {
  for (const std::vector<int>& machines : two_machines()) {
    const auto hops = std::make_shared<const comm::MachineHops>(everyone(), machines);
    for (const test::LayerShape& shape : shapes()) {
      if (Layer::config_of(shape).experts.chunks > 1) continue;  // in chunks they go straight
      SCOPED_TRACE(fmt::format("{} experts, {} tokens", shape.experts, shape.tokens));
      Layer straight(shape, everyone()), hopping(shape, everyone(), test::double_on_cpu(), hops);
      expect_same_bits(straight, hopping, own_part(test::random_rows(shape.tokens, 1)),
                       hopping.routing());
      EXPECT_GT(hopping.layer.take_exchange_seconds(), 0);
    }
    // As in validation, with another number of tokens on each worker.
    Layer straight({.experts = 8}, everyone());
    Layer hopping({.experts = 8}, everyone(), test::double_on_cpu(), hops);
    expect_same_bits(straight, hopping,
                     test::random_rows(5 * (everyone().rank() % 3), 10 + everyone().rank()),
                     {.mode = RoutingMode::kGreedy});
  }
}

// Greedy and priced routing, with another number of tokens on each worker, none on some.
TEST(LayerOfWorkers, RoutesUnevenTokensAsOneWorkerDoes) {
  Layer whole({.experts = 8}, test::lone_worker()), part({.experts = 8}, everyone());
  const Tensor prices = at::linspace(-2, 2, 8, at::kDouble);
  whole.layer.router().prices()->set(prices);
  part.layer.router().prices()->set(prices);
  for (const RoutingMode mode : {RoutingMode::kGreedy, RoutingMode::kPriced}) {
    const Tensor own = test::random_rows(5 * (everyone().rank() % 3), 10 + everyone().rank());
    const Tensor got = part.layer.forward(own, {.mode = mode});
    ASSERT_EQ(got.sizes(), own.sizes());
    if (own.size(0) > 0) expect_near(got, whole.layer.forward(own, {.mode = mode}), "output");
  }
}

// Rows that say where they come from.
Tensor marked_rows(int64_t rows) {
  return (at::arange(rows, at::kDouble) + 1000 * everyone().rank()).unsqueeze(1).expand({rows, 3});
}

TEST(DispatchOfWorkers, GivesEveryExpertItsShareAndEveryTokenOnce) {
  const int64_t experts = 8, groups = 2, tokens = 20;  // of each worker
  const Tensor expert = (at::arange(groups * tokens) * 7 + everyone().rank()).remainder(experts);
  const Tensor of_groups = expert.view({groups, tokens}).to(at::kInt);
  // Loads differ by one at most here, as in an assignment.
  const Tensor order = at::argsort(of_groups, /*stable=*/true, /*dim=*/1);
  const Tensor places =
      at::empty_like(order).scatter_(1, order, at::arange(tokens).expand({groups, tokens}));
  const Tensor loads = at::zeros({groups, experts}, at::kLong)
                           .scatter_add_(1, of_groups.to(at::kLong), at::ones_like(order));
  const BalancedSlots slots = balanced_slots(
      {of_groups.unsqueeze(0), places.to(at::kInt).unsqueeze(0), loads.to(at::kInt).unsqueeze(0)},
      {});
  const Dispatch dispatch = dispatch_blocks({experts, everyone().size()},
                                            slots.slot_of_row.squeeze(1), slots.row_of_slot);
  Tensor x = marked_rows(groups * tokens).clone().requires_grad_();
  const Tensor arrived = exchange(everyone(), x, dispatch.way, {"test", 1});
  const Tensor returned = exchange_back(everyone(), arrived, dispatch.way, {"test", 1});
  EXPECT_TRUE(at::equal(returned, x)) << "dispatch then combine";
  const Tensor dy = test::random_rows(groups * tokens, 20 + everyone().rank()).narrow(1, 0, 3);
  torch::autograd::backward({returned}, {dy});
  EXPECT_TRUE(at::equal(x.grad(), dy)) << "its gradient";

  // All tokens of all workers are at some expert once; -1 marks the rows that are filled up.
  const Tensor filled =
      exchange(everyone(), at::ones({groups * tokens, 1}), dispatch.way, {"test", 1});
  EXPECT_EQ(
      at::Tensor(filled.sum()).item<double>(),
      static_cast<double>(groups * tokens * everyone().size() * (experts / everyone().size())) /
          static_cast<double>(experts));
  const int64_t block = (tokens + experts - 1) / experts;
  for (const int64_t rows : dispatch.rows_of_expert.counts)
    EXPECT_EQ(rows, groups * everyone().size() * block);
}

TEST(DispatchOfWorkers, ByCountsBringsEveryRowBack) {
  const int64_t rows = 7 * (everyone().rank() + 1);
  const Tensor expert = (at::arange(rows) * 5).remainder(8) * (everyone().rank() % 2);
  const Dispatch dispatch = dispatch_by_counts(everyone(), 8, expert, {"test", 1});
  Tensor x = marked_rows(rows).clone().requires_grad_();
  const Tensor arrived = exchange(everyone(), x, dispatch.way, {"test", 1});
  const Tensor returned = exchange_back(everyone(), arrived, dispatch.way, {"test", 1});
  EXPECT_TRUE(at::equal(returned, x));
  // Each row is with its expert.
  const Tensor experts =
      exchange(everyone(), expert.to(at::kDouble).unsqueeze(1), dispatch.way, {"test", 1});
  const int64_t local = 8 / everyone().size();
  int64_t row = 0;
  for (int64_t e = 0; e < local; ++e) {
    for (int64_t i = 0; i < dispatch.rows_of_expert.counts[static_cast<size_t>(e)]; ++i)
      EXPECT_EQ(experts[row++].item<double>(), static_cast<double>(everyone().rank() * local + e));
  }
  EXPECT_EQ(row, arrived.size(0));
}

}  // namespace
}  // namespace ballast::experts
