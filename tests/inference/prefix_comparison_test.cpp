// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/prefix_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/loading/sparse_model.h"

namespace ballast::inference {
namespace {

using at::Tensor;
using ::testing::HasSubstr;

constexpr int64_t kRows = 3, kContext = 20, kExperts = 4;
constexpr ComparisonBounds kBounds{.scores = 1e-5, .logits = 1e-4};

Tensor random_scores(const std::string& name) {
  return test::normal_values({kRows * kContext, kExperts}, name).to(at::kFloat);
}

// `scores` with those of each row from `cut` on replaced.
Tensor with_other_futures(const Tensor& scores, int64_t cut) {
  Tensor changed = scores.clone();
  for (int64_t row = 0; row < kRows; ++row) {
    changed.narrow(0, row * kContext + cut, kContext - cut)
        .copy_(random_scores("other").narrow(0, row * kContext + cut, kContext - cut));
  }
  return changed;
}

experts::SeenRoute greedy(const Tensor& scores) { return {1, scores.argmax(1), scores}; }

// Each token's choice is swayed a little by the next one.
experts::SeenRoute looking_ahead(const Tensor& scores, double sway) {
  return {1, (scores + scores.roll(-1, 0) * sway).argmax(1), scores};
}

experts::SeenRoute route(const Tensor& scores, std::vector<int64_t> experts) {
  return {1, at::tensor(experts, at::kLong), scores};
}

TEST(PrefixComparison, OfAnHonestRouterFindsNothing) {
  const Tensor scores = random_scores("scores");
  for (int64_t cut = 1; cut < kContext; ++cut) {
    PrefixComparison comparison(kBounds, {0, 1, 2}, {cut, cut, 0});
    comparison.add_routes(greedy(scores), greedy(with_other_futures(scores, cut)), 0);
    EXPECT_EQ(comparison.counts().routes, 2 * cut) << "nothing is compared after the prefix";
    EXPECT_EQ(comparison.counts().changed_routes + comparison.counts().ties, 0);
    EXPECT_EQ(comparison.first_leak(), "");
  }
}

TEST(PrefixComparison, FindsARouterThatLooksOneTokenAhead) {
  const Tensor scores = random_scores("scores");
  for (const double sway : {1.0, 0.1}) {
    int64_t found = 0;
    for (int64_t cut = 1; cut < kContext; ++cut) {
      PrefixComparison comparison(kBounds, {7, 8, 9}, {cut, cut, cut});
      comparison.add_routes(looking_ahead(scores, sway),
                            looking_ahead(with_other_futures(scores, cut), sway), 0);
      const ComparisonCounts& counts = comparison.counts();
      EXPECT_LE(counts.changed_routes, kRows) << "only the last token of a prefix sees ahead";
      EXPECT_EQ(counts.ties, 0) << "equal scores leave no room for rounding";
      found += counts.changed_routes;
      if (counts.changed_routes > 0) {
        EXPECT_THAT(comparison.first_leak(),
                    HasSubstr(fmt::format("prefix of {} tokens: token {} goes", cut, cut - 1)));
      }
    }
    EXPECT_GT(found, 0) << "a sway of " << sway;
  }
}

TEST(PrefixComparison, ATieExcusesWhatFollowsItInLaterLayersAndLogits) {
  const Tensor before = at::zeros({kContext, 2}), after = before.clone();
  before[5][0] = 1 + 2e-6;
  before[5][1] = 1;
  after[5][0] = 1;
  after[5][1] = 1 + 1e-6;
  std::vector<int64_t> experts(kContext, 0), flipped = experts;
  flipped[5] = 1;
  PrefixComparison comparison(kBounds, {0}, {10});
  comparison.add_routes(route(before, experts), route(after, flipped), 0);
  EXPECT_EQ(comparison.counts().ties, 1);
  EXPECT_EQ(comparison.counts().changed_routes, 0);
  EXPECT_EQ(comparison.counts().routes, 10) << "in the same layer all are compared";
  EXPECT_EQ(comparison.counts().left_out, 5);
  EXPECT_EQ(comparison.untouched(0), 5);

  // In the next layer tokens 5 to 9 may go anywhere, token 4 may not.
  std::vector<int64_t> anywhere(kContext, 1);
  std::fill_n(anywhere.begin(), 5, 0);
  const Tensor some = test::normal_values({kContext, 2}, "some").to(at::kFloat), others = -some;
  comparison.add_routes(route(some, experts), route(others, anywhere), 0);
  EXPECT_EQ(comparison.counts().routes, 15);
  EXPECT_EQ(comparison.counts().changed_routes, 0);
  anywhere[4] = 1;
  comparison.add_routes(route(some, experts), route(others, anywhere), 0);
  EXPECT_EQ(comparison.counts().changed_routes, 1);
}

TEST(PrefixComparison, ATieIsWhatRoundingExplainsAndNoMore) {
  const auto ties = [](double gap, double drift, double price) {
    const Tensor before = at::zeros({4, 2}), after = at::zeros({4, 2});
    before[1][0] = 1 + gap;
    before[1][1] = 1;
    after[1][0] = 1 + gap - drift;
    after[1][1] = 1 + drift;
    PrefixComparison comparison(kBounds, {0}, {4});
    comparison.add_routes(route(before, {0, 0, 0, 0}), route(after, {0, 1, 0, 0}), price);
    return comparison.counts().ties == 1;
  };
  EXPECT_TRUE(ties(8e-6, 5e-6, 0));
  EXPECT_FALSE(ties(8e-6, 0, 0)) << "scores that stay the same explain no other choice";
  EXPECT_FALSE(ties(1e-3, 1e-3, 0)) << "scores that move by more than rounding do not either";
  EXPECT_TRUE(ties(1e-3, 1e-3, 100)) << "large affinities less large prices round coarsely";
}

TEST(PrefixComparison, LogitsAgreeWithinTheBound) {
  const Tensor logits = test::normal_values({6, 11}, "logits").to(at::kFloat);
  const auto changed = [&](double by) {
    PrefixComparison comparison(kBounds, {0}, {6});
    Tensor other = logits.clone();
    other[2][3] += by * logits[2].abs().max();
    comparison.add_logits(0, 0, logits, other);
    EXPECT_EQ(comparison.counts().logits, 6);
    return comparison.counts();
  };
  EXPECT_EQ(changed(0).logit_difference, 0);
  EXPECT_NEAR(changed(5e-5).logit_difference, 5e-5, 1e-6);
  EXPECT_EQ(changed(5e-5).changed_logits, 0);
  EXPECT_EQ(changed(2e-4).changed_logits, 1);
  for (const double strange : {std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_EQ(changed(strange).changed_logits, 1) << strange;
}

TEST(PrefixComparison, BrokenLogitsAreNoAgreement) {
  const Tensor broken = at::full({1, 3}, std::nan("")), nothing = at::zeros({1, 3});
  PrefixComparison comparison(kBounds, {0, 1}, {1, 1});
  comparison.add_logits(0, 0, broken, broken);
  EXPECT_EQ(comparison.counts().changed_logits, 1);
  comparison.add_logits(1, 0, nothing, nothing);
  EXPECT_EQ(comparison.counts().changed_logits, 1) << "zeros are equal to zeros";
}

TEST(RoundingBound, GrowsWithWhatIsRounded) {
  EXPECT_LT(rounding_bound(at::kDouble, 64, 4), 1e-12);
  EXPECT_LT(rounding_bound(at::kFloat, 64, 4), 1e-4);
  EXPECT_GT(rounding_bound(at::kFloat, 64, 4), 1e-6);
  EXPECT_LT(rounding_bound(at::kBFloat16, 2048, 48), 0.5);
  EXPECT_GT(rounding_bound(at::kFloat, 256, 4), rounding_bound(at::kFloat, 64, 4));
  EXPECT_GT(rounding_bound(at::kFloat, 64, 8), rounding_bound(at::kFloat, 64, 4));
}

TEST(RoundingBound, HoldsForWindowsComputedAloneAndTogether) {
  const at::NoGradGuard no_grad;
  config::Config config = test::sparse_config(32);
  config.model.width = 32;
  config.model.layers = 4;
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const test::SparseModel m(config, dtype);
    m.table.master().mul_(0.25);  // weights of a size that training gives
    const Tensor tokens = test::normal_values({24, 32}, "tokens").mul(100).abs().to(at::kLong) % 13;
    const Tensor together = m.model.logits(m.model.forward(tokens, {}));
    double most = 0;
    for (int64_t row = 0; row < tokens.size(0); ++row) {
      const Tensor alone = m.model.logits(m.model.forward(tokens.narrow(0, row, 1), {}));
      const Tensor apart = (together.narrow(0, row * 32, 32) - alone).abs().amax(1);
      most = std::max(most, (apart / alone.abs().amax(1)).max().item<double>());
    }
    const double bound = rounding_bound(dtype, 32, 2 * (4 + 2));
    EXPECT_LT(most, bound / 4) << c10::toString(dtype);
    EXPECT_GT(most, bound / 1e4) << "numbers that are equal to the bit show nothing";
  }
}

}  // namespace
}  // namespace ballast::inference
