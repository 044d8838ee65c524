// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/system/random.h"
#include "tests/support/lone_worker.h"

namespace ballast {
namespace {

constexpr int64_t kContext = 8, kVocabulary = 11;

struct SmallModel {
  SmallModel()
      : model({.model = {.vocabulary = kVocabulary,
                         .width = 8,
                         .layers = 1,
                         .heads = 2,
                         .hidden = 0,
                         .context = kContext}},
              table, test::lone_worker()) {
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    table.initialize(5);
    table.master().mul_(10);
    RandomStream random(1, "evaluate test");
    for (int i = 0; i < 30; ++i) ids.push_back(static_cast<int64_t>(random.below(kVocabulary)));
    source = tokens_in_memory(ids, {.name = "test", .format = "memory", .source_bytes = 60});
  }

  // -log p of token `i` given the `before` tokens that stand before it.
  double loss_of(int64_t i, int64_t before) const {
    const at::NoGradGuard no_grad;
    const std::vector<int64_t> seen(ids.begin() + i - before, ids.begin() + i);
    const at::Tensor logits =
        model.logits(model.forward(at::tensor(seen, at::kLong).unsqueeze(0), {}))[-1];
    return -at::log_softmax(logits, 0)[ids[static_cast<size_t>(i)]].item<double>();
  }

  ParameterTable table;
  LanguageModel model;
  ComputePlace place{.working = at::kDouble, .master = at::kDouble};
  std::vector<int64_t> ids;
  std::shared_ptr<TokenSource> source;
};

// The sum over all tokens but the first, each with the context its window gives it.
double expected_sum(const SmallModel& s, int64_t stride) {
  double sum = 0;
  for (int64_t i = 1; i < static_cast<int64_t>(s.ids.size()); ++i) {
    const int64_t target = i - 1;  // its place among the predictions
    const int64_t window = target < kContext ? 0 : (target - kContext) / stride + 1;
    sum += s.loss_of(i, i - window * stride);
  }
  return sum;
}

TEST(Evaluate, EqualsOneTokenAtATimeForAnyStrideAndBatch) {
  const SmallModel s;
  for (const int64_t stride : {8, 5, 1}) {
    const double expected = expected_sum(s, stride) / 29;
    for (const int64_t batch : {1, 3, 100}) {
      const EvalWindows windows(s.source, kContext, stride);
      const Evaluation result = evaluate(s.model, s.place, windows, {batch, 0});
      EXPECT_NEAR(result.loss, expected, 1e-12) << "stride " << stride << " batch " << batch;
      EXPECT_EQ(result.tokens, 29U);
      EXPECT_NEAR(result.perplexity, std::exp(expected), 1e-9);
      ASSERT_TRUE(result.bits_per_byte);
      EXPECT_NEAR(*result.bits_per_byte, expected * 29 / std::log(2.0) / 60, 1e-12);
    }
  }
}

TEST(Evaluate, APartOfTheWindowsIsSpreadOverTheSource) {
  const SmallModel s;
  const EvalWindows windows(s.source, kContext, kContext);
  const Evaluation some = evaluate(s.model, s.place, windows, {1, 2});
  EXPECT_EQ(some.tokens, 13U) << "the first window has 8 targets, the last 5";
  EXPECT_FALSE(some.bits_per_byte) << "not all of the text was read";
}

TEST(Evaluate, APartReachesTheEndWhateverTheNumbers) {
  const SmallModel s;
  const auto loss_with_last =
      [&](int64_t last) {  // a token that only the last of 100 windows holds
        std::vector<int64_t> ids(100 * kContext + 1, 3);
        ids.back() = last;
        const std::shared_ptr<TokenSource> tokens =
            tokens_in_memory(ids, {.name = "test", .format = "memory"});
        return evaluate(s.model, s.place, EvalWindows(tokens, kContext, kContext), {8, 64}).loss;
      };
  EXPECT_NE(loss_with_last(3), loss_with_last(4));
}

}  // namespace
}  // namespace ballast
