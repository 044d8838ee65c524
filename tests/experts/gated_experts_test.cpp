// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_mlp.h"
#include "tests/experts/expert_stack_cases.h"

namespace ballast::experts {
namespace {

using at::Tensor;

// The definition, in operations that autograd differentiates; w: the weights of each sublayer.
Tensor plain_gated_experts(const Tensor& h, const Loads& loads,
                           const std::vector<std::vector<Tensor>>& w, const Tensor& embeddings) {
  Tensor stacked = h;
  for (const auto& weights : w) stacked = plain_expert_feed_forward(stacked, loads, weights);
  const Tensor expert = at::repeat_interleave(at::tensor(loads, at::kLong));
  const Tensor gate = at::sigmoid((h * embeddings.index_select(0, expert)).sum(1, true));
  return h + gate * (stacked - h);
}

// Rows of some slots in a random order, the other slots nobody's.
struct Places {
  Tensor row_of_slot, slot_of_row;
};
Places draw_places(int64_t slots, int64_t rows) {
  const Tensor slot_of_row = at::randperm(slots, at::kLong).narrow(0, 0, rows).contiguous();
  return {at::full({slots}, -1, at::kLong).scatter_(0, slot_of_row, at::arange(rows)), slot_of_row};
}

struct Shape {
  Loads loads;
  int64_t rows, width = 24, inner = 56;
  size_t sublayers = 1;
};

struct GatedExperts : StackOfExperts {
  Units units() const {
    return GetParam().dtype == at::kBFloat16 ? Units::kFarFromZero : Units::kAnywhere;
  }

  void compare_with_twin(const Shape& shape, const Places& places) const {
    const auto experts = static_cast<int64_t>(shape.loads.size());
    std::vector<std::vector<SpacedParameter>> spaced;
    std::vector<std::vector<kernels::Parameter>> parameters;
    std::vector<std::vector<Tensor>> leaves, before;
    for (size_t i = 0; i < shape.sublayers; ++i) {
      spaced.push_back(spaced_weights(experts, shape.width, shape.inner, units()));
      for (auto* of_sublayers : {&leaves, &before}) of_sublayers->emplace_back();
      parameters.emplace_back();
      for (const SpacedParameter& w : spaced.back()) {
        parameters.back().push_back(w.parameter);
        leaves.back().push_back(exact(w.parameter.value).requires_grad_());
        before.back().push_back(exact(w.parameter.gradient));
      }
    }
    std::vector<ExpertWeights> sublayers;
    for (const auto& p : parameters) sublayers.push_back(expert_weights(p));
    const double size = 1.5 / std::sqrt(static_cast<double>(shape.width));  // gates are not shut
    const SpacedParameter embeddings(random({experts, shape.width}) * size,
                                     random({experts, shape.width}));
    const Tensor embeddings_before = exact(embeddings.parameter.gradient),
                 exact_embeddings = exact(embeddings.parameter.value).requires_grad_();
    const Tensor h = random({shape.rows, shape.width}) * 2 + 0.5, dy = random(h.sizes());
    const Tensor h1 = h.clone().requires_grad_(), h2 = exact(h).requires_grad_();
    RoutedRows routed{h1, shape.loads};
    Tensor in_slots = h2;
    if (places.row_of_slot.defined()) {
      routed.row_of_slot = places.row_of_slot.to(h.device());
      routed.slot_of_row = places.slot_of_row.to(h.device());
      in_slots = at::zeros({places.row_of_slot.size(0), shape.width}, at::kDouble)
                     .index_copy(0, places.slot_of_row, h2);
    }
    const Tensor y1 = gated_experts(routed, sublayers, embeddings.parameter);
    Tensor y2 = plain_gated_experts(in_slots, shape.loads, leaves, exact_embeddings);
    if (places.row_of_slot.defined()) y2 = y2.index_select(0, places.slot_of_row);
    expect_close(y1, y2, "result");
    torch::autograd::backward({y1}, {dy});
    torch::autograd::backward({y2}, {exact(dy)});
    expect_close(h1.grad(), h2.grad(), "gradient of h");
    expect_close(embeddings.parameter.gradient, embeddings_before + exact_embeddings.grad(),
                 "gradient of the embeddings");
    embeddings.expect_gaps_untouched();
    for (size_t i = 0; i < shape.sublayers; ++i) {
      for (size_t j = 0; j < spaced[i].size(); ++j) {
        expect_close(parameters[i][j].gradient, before[i][j] + leaves[i][j].grad(),
                     kExpertWeightNames[j]);
        spaced[i][j].expect_gaps_untouched();
      }
    }
  }
};

TEST_P(GatedExperts, EqualTheirTwin) {
  for (const Loads& loads : expert_loads()) {
    for (const size_t sublayers : {1, 2, 3}) {
      SCOPED_TRACE(::testing::PrintToString(loads) + ", sublayers " + std::to_string(sublayers));
      const int64_t slots = total(loads);
      const Shape shape{.loads = loads, .rows = slots, .sublayers = sublayers};
      compare_with_twin(shape, {});
      compare_with_twin(shape, draw_places(slots, slots));
    }
  }
}

// Slots of nobody, a whole expert of them among others.
TEST_P(GatedExperts, LeaveOutEmptySlots) {
  for (const size_t sublayers : {1, 3}) {
    compare_with_twin({.loads = {13, 13, 13, 13}, .rows = 47, .sublayers = sublayers},
                      draw_places(52, 47));
    const Tensor first = at::arange(26);
    compare_with_twin({.loads = {26, 26}, .rows = 26, .sublayers = sublayers},
                      {at::cat({first, at::full({26}, -1, at::kLong)}), first});
  }
}

// Odd widths, and as many columns as a pass has threads for, or more.
TEST_P(GatedExperts, TakeAnyWidth) {
  for (const int64_t width : {3, 25, 8, 256, 264, 1032, 2056, 4096, 4104}) {
    SCOPED_TRACE(width);
    compare_with_twin({.loads = {5, 5, 5}, .rows = 14, .width = width, .inner = 16, .sublayers = 2},
                      draw_places(15, 14));
  }
}

TEST_P(GatedExperts, TakeManyRowsAndManyExperts) {
  compare_with_twin({.loads = {1111}, .rows = 1100, .width = 64}, draw_places(1111, 1100));
  compare_with_twin({.loads = Loads(300, 2), .rows = 600, .width = 8, .inner = 16},
                    draw_places(600, 600));
}

TEST_P(GatedExperts, RefuseWhatDoesNotFit) {
  std::vector<kernels::Parameter> p;
  for (const auto& shape : weight_shapes(2, 8, 16)) p.push_back({random(shape), {}});
  const std::vector<ExpertWeights> sublayers{expert_weights(p)};
  const kernels::Parameter embeddings{random({2, 8}), {}};
  const Tensor h = random({6, 8}), places = longs({0, 1, 2, 3, 4, 5});
  EXPECT_NO_THROW(gated_experts({h, Loads{3, 3}, places, places}, sublayers, embeddings));
  EXPECT_THROW(gated_experts({h, Loads{3, 2}}, sublayers, embeddings), c10::Error);
  EXPECT_THROW(gated_experts({h, Loads{3, 2, 1}}, sublayers, embeddings), c10::Error);
  EXPECT_THROW(gated_experts({h, Loads{3, 3}, places}, sublayers, embeddings), c10::Error);
  EXPECT_THROW(gated_experts({h, Loads{4, 4}, places, places}, sublayers, embeddings), c10::Error);
  EXPECT_THROW(gated_experts({h, Loads{3, 3}, places, longs({0})}, sublayers, embeddings),
               c10::Error);
  EXPECT_THROW(gated_experts({random({6, 7}), Loads{3, 3}}, sublayers, embeddings), c10::Error);
  EXPECT_THROW(gated_experts({h, Loads{3, 3}}, sublayers, {random({3, 8}), {}}), c10::Error);
}

INSTANTIATE_TEST_SUITE_P(Cpu, GatedExperts, cpu_cases(), case_name);
INSTANTIATE_TEST_SUITE_P(Cuda, GatedExperts, cuda_cases(), case_name);

// In bf16 at sizes of use, against the composition in double on the same GPU.
struct GatedExpertsCuda : ::testing::Test {
  void SetUp() override {
    ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
    at::manual_seed(3);
  }

  struct Stack {
    std::vector<kernels::Parameter> weights;
    kernels::Parameter embeddings;
  };
  static Stack draw(int64_t experts, int64_t width, int64_t inner, double of_down) {
    const auto options = at::device(at::kCUDA).dtype(at::kBFloat16);
    const auto parameter = [&](at::IntArrayRef shape, double scale) {
      return kernels::Parameter{(at::randn(shape, options) * scale).to(at::kBFloat16),
                                at::zeros(shape, options)};
    };
    Stack stack;
    for (const auto& shape : weight_shapes(experts, width, inner))
      stack.weights.push_back(parameter(
          shape, shape.size() == 3 ? 0.25 / std::sqrt(static_cast<double>(shape[2])) : 0.5));
    stack.weights[3].value.sign_().mul_(3);  // units far from zero, where rounding turns none on
    for (const size_t down : {4, 5}) stack.weights[down].value.mul_(of_down);
    stack.embeddings = parameter({experts, width}, 0.5 / std::sqrt(static_cast<double>(width)));
    return stack;
  }
  static Stack in_double(const Stack& stack) {
    const auto copy = [](const kernels::Parameter& p) {
      return kernels::Parameter{p.value.to(at::kDouble), p.gradient.to(at::kDouble)};
    };
    Stack result;
    for (const kernels::Parameter& p : stack.weights) result.weights.push_back(copy(p));
    result.embeddings = copy(stack.embeddings);
    return result;
  }

  struct Results {
    Tensor y, dh;
  };
  static Results run(const Stack& stack, RoutedRows routed, const Tensor& rows, const Tensor& dy) {
    const Tensor h = routed.rows = rows.detach().requires_grad_();
    const Tensor y = gated_experts(routed, {expert_weights(stack.weights)}, stack.embeddings);
    torch::autograd::backward({y}, {dy});
    return {y.detach(), h.grad()};
  }
  static double relative_error(const Tensor& got, const Tensor& want) {
    return ((got.to(at::kDouble) - want).norm() / want.norm()).item<double>();
  }
  // Without the rows themselves.
  static RoutedRows draw_slots(int64_t experts, int64_t of_expert, int64_t rows) {
    const Places places = draw_places(experts * of_expert, rows);
    return {{},
            Loads(static_cast<size_t>(experts), of_expert),
            places.row_of_slot.to(at::kCUDA),
            places.slot_of_row.to(at::kCUDA)};
  }
};

// A rounding is 2^-9 at most, and half of that on average; gradients pass about six of them.
constexpr double kSomeRoundings = 0x1p-7;

TEST_F(GatedExpertsCuda, ArePreciseAtSizesOfUse) {
  for (const int64_t experts : {8, 128}) {
    SCOPED_TRACE(experts);
    const int64_t rows = 16384 - 5, width = 1024, inner = experts == 8 ? 4096 : 512;
    const Stack stack = draw(experts, width, inner, 1), expected = in_double(stack);
    const RoutedRows slots = draw_slots(experts, 16384 / experts, rows);
    const auto options = at::device(at::kCUDA).dtype(at::kBFloat16);
    const Tensor h = at::randn({rows, width}, options), dy = at::randn({rows, width}, options);
    const Results got = run(stack, slots, h, dy),
                  want = run(expected, slots, h.to(at::kDouble), dy.to(at::kDouble));
    EXPECT_LE(relative_error(got.y, want.y), kSomeRoundings);
    EXPECT_LE(relative_error(got.dh, want.dh), kSomeRoundings);
    EXPECT_LE(relative_error(stack.embeddings.gradient, expected.embeddings.gradient),
              kSomeRoundings);
    for (size_t i = 0; i < stack.weights.size(); ++i) {
      EXPECT_LE(relative_error(stack.weights[i].gradient, expected.weights[i].gradient),
                kSomeRoundings)
          << kExpertWeightNames[i];
    }
  }
}

// What experts add is a hundredth of h: as a difference of rows in bf16 it would be off by 20 %.
TEST_F(GatedExpertsCuda, GateIsPreciseWhereExpertsAddLittle) {
  const int64_t rows = 512, width = 256;
  const Stack stack = draw(4, width, 512, 0.005), expected = in_double(stack);
  const RoutedRows slots = draw_slots(4, rows / 4, rows);
  const auto options = at::device(at::kCUDA).dtype(at::kBFloat16);
  const Tensor h = at::randn({rows, width}, options), dy = at::randn({rows, width}, options);
  run(stack, slots, h, dy);
  const Results want = run(expected, slots, h.to(at::kDouble), dy.to(at::kDouble));
  ASSERT_LE(relative_error(h, want.y), 0.02);
  EXPECT_LE(relative_error(stack.embeddings.gradient, expected.embeddings.gradient),
            kSomeRoundings);
}

TEST_F(GatedExpertsCuda, GiveTheSameBitsEveryTime) {
  const Stack stack = draw(8, 1024, 512, 1), again = draw(8, 1024, 512, 1);
  for (size_t i = 0; i < stack.weights.size(); ++i)
    again.weights[i].value.copy_(stack.weights[i].value);
  again.embeddings.value.copy_(stack.embeddings.value);
  const RoutedRows slots = draw_slots(8, 250, 1990);
  const auto options = at::device(at::kCUDA).dtype(at::kBFloat16);
  const Tensor h = at::randn({1990, 1024}, options), dy = at::randn({1990, 1024}, options);
  const Results first = run(stack, slots, h, dy), second = run(again, slots, h, dy);
  EXPECT_TRUE(at::equal(first.y, second.y));
  EXPECT_TRUE(at::equal(first.dh, second.dh));
  EXPECT_TRUE(at::equal(stack.embeddings.gradient, again.embeddings.gradient));
  for (size_t i = 0; i < stack.weights.size(); ++i)
    EXPECT_TRUE(at::equal(stack.weights[i].gradient, again.weights[i].gradient))
        << kExpertWeightNames[i];
}

}  // namespace
}  // namespace ballast::experts
