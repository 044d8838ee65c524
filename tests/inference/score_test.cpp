// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/score.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/system/random.h"
#include "tests/support/lone_worker.h"

namespace ballast::inference {
namespace {

constexpr int64_t kContext = 8, kVocabulary = 11;

struct SmallModel {
  SmallModel() : model(config(), table, test::lone_worker()) {
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    table.initialize(5);
    table.master().mul_(10);
  }

  static config::Config config() {
    config::Config config;
    config.model = {
        .vocabulary = kVocabulary, .width = 8, .layers = 1, .heads = 2, .context = kContext};
    return config;
  }

  // One token at a time, each with what stands before it in the window.
  ContinuationScore plain(const Continuation& one) const {
    const at::NoGradGuard no_grad;
    std::vector<int64_t> tokens = one.context;
    tokens.insert(tokens.end(), one.target.begin(), one.target.end());
    const int64_t start = std::max<int64_t>(0, std::ssize(tokens) - 1 - kContext);
    ContinuationScore score{.nats = 0, .is_likeliest = true};
    for (int64_t i = std::ssize(one.context); i < std::ssize(tokens); ++i) {
      const std::vector<int64_t> seen(tokens.begin() + start, tokens.begin() + i);
      const at::Tensor logits =
          model.logits(model.forward(at::tensor(seen, at::kLong).unsqueeze(0), {}))[-1];
      const int64_t target = tokens[static_cast<size_t>(i)];
      score.nats -= at::log_softmax(logits, 0)[target].item<double>();
      score.is_likeliest = score.is_likeliest && logits.argmax().item<int64_t>() == target;
    }
    return score;
  }

  parameters::ParameterTable table;
  model::LanguageModel model;
  model::ComputePlace place{.working = at::kDouble, .master = at::kDouble};
};

std::vector<Continuation> some_continuations(const SmallModel& s) {
  RandomStream random(1, "score test");
  const auto tokens = [&](size_t count) {
    std::vector<int64_t> list;
    while (list.size() < count) list.push_back(static_cast<int64_t>(random.below(kVocabulary)));
    return list;
  };
  std::vector<Continuation> list;
  for (int i = 0; i < 20; ++i)
    list.push_back(
        {.context = tokens(1 + random.below(12)), .target = tokens(1 + random.below(8))});
  // Some that are the likeliest: one token, found by trying all.
  for (int i = 0; i < 5; ++i) {
    Continuation best{.context = tokens(3), .target = {0}};
    for (int64_t id = 1; id < kVocabulary; ++id) {
      const Continuation other{.context = best.context, .target = {id}};
      if (s.plain(other).nats < s.plain(best).nats) best = other;
    }
    list.push_back(best);
  }
  return list;
}

TEST(Score, EqualsOneTokenAtATimeForAnyBatch) {
  const SmallModel s;
  const std::vector<Continuation> list = some_continuations(s);
  for (const int64_t batch : {1, 3, 100}) {
    uint64_t told = 0;
    const auto scores = score(s.model, s.place, list, {.batch = batch}, [&](uint64_t count) {
      told += count;
      return true;
    });
    ASSERT_EQ(scores.size(), list.size());
    EXPECT_EQ(told, list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const ContinuationScore expected = s.plain(list[i]);
      EXPECT_NEAR(scores[i].nats, expected.nats, 1e-12 * std::max(1.0, expected.nats)) << i;
      EXPECT_EQ(scores[i].is_likeliest, expected.is_likeliest) << i;
    }
    EXPECT_TRUE(scores.back().is_likeliest);
  }
}

TEST(Score, StopsOnRequestWithoutScores) {
  const SmallModel s;
  const auto list = some_continuations(s);
  EXPECT_TRUE(score(s.model, s.place, list, {.batch = 4}, [](uint64_t) { return false; }).empty());
}

TEST(Score, WhatCannotBeAskedIsAFaultOfTheCaller) {
  const SmallModel s;
  EXPECT_THROW(score(s.model, s.place, {{.context = {}, .target = {1}}}, {}),
               std::invalid_argument);
  EXPECT_THROW(score(s.model, s.place, {{.context = {1}, .target = {}}}, {}),
               std::invalid_argument);
  EXPECT_THROW(score(s.model, s.place, {{.context = {1}, .target = std::vector<int64_t>(9)}}, {}),
               std::invalid_argument);
}

// The windows that lm-eval makes of 11 tokens with a context of 4, and of 3.
TEST(Score, RollingWindowsPredictEachTokenOnceAndTheLastReachesBack) {
  using testing::ElementsAre;
  const std::vector<int64_t> tokens = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto windows = rolling_windows(tokens, 99, 4);
  ASSERT_EQ(windows.size(), 3U);
  EXPECT_THAT(windows[0].context, ElementsAre(99));
  EXPECT_THAT(windows[0].target, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(windows[1].context, ElementsAre(3));
  EXPECT_THAT(windows[1].target, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(windows[2].context, ElementsAre(6, 7));
  EXPECT_THAT(windows[2].target, ElementsAre(8, 9, 10));
  const auto few = rolling_windows({1, 2, 3}, 99, 4);
  ASSERT_EQ(few.size(), 1U);
  EXPECT_THAT(few[0].target, ElementsAre(1, 2, 3));
  EXPECT_TRUE(rolling_windows({}, 99, 4).empty());
}

}  // namespace
}  // namespace ballast::inference
