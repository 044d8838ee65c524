// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/score_moments.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/loading/sparse_model.h"

namespace ballast::inference {
namespace {

constexpr int64_t kExperts = 5;

at::Tensor all_of(int64_t tokens) { return at::ones({tokens}, at::kBool); }

double share_of(const at::Tensor& scores) {
  ScoreMoments moments(scores.size(1));
  moments.add(scores, all_of(scores.size(0)));
  return moments.first_direction_share();
}

// Each expert is liked and disliked by one token: no direction is more than another.
at::Tensor in_all_directions() {
  const at::Tensor one = at::eye(kExperts, at::kDouble);
  return at::cat({one, -one});
}

// Tokens that like the same experts, some more, some less.
at::Tensor in_one_direction(int64_t tokens) {
  return at::outer(test::normal_values({tokens}, "how much"),
                   test::normal_values({kExperts}, "what"));
}

TEST(ScoreMoments, TellOneDirectionFromMany) {
  EXPECT_NEAR(share_of(in_all_directions()), 1.0 / (kExperts - 1), 1e-12);
  EXPECT_NEAR(share_of(in_one_direction(40)), 1, 1e-12);
  const double between = share_of(in_one_direction(10) + in_all_directions());
  EXPECT_GT(between, 0.3);
  EXPECT_LT(between, 0.99);
}

TEST(ScoreMoments, AreThoseOfTheSingularValues) {
  const at::Tensor scores = test::normal_values({30, kExperts}, "scores");
  at::Tensor centred = scores - scores.mean(1, true);
  centred = centred - centred.mean(0, true);
  const at::Tensor values = at::linalg_svdvals(centred).square();
  EXPECT_NEAR(share_of(scores), (values[0] / values.sum()).item<double>(), 1e-12);
}

TEST(ScoreMoments, PricesAndWhatATokenHasForAllMakeNoDifference) {
  const at::Tensor scores = test::normal_values({30, kExperts}, "scores");
  const at::Tensor prices = 10 * test::normal_values({kExperts}, "prices");
  const at::Tensor of_token = 10 * test::normal_values({30, 1}, "tokens");
  EXPECT_NEAR(share_of(scores - prices + of_token), share_of(scores), 1e-10);
}

TEST(ScoreMoments, AddUpOverBatchesAndPassOverWhatIsNotCounted) {
  const at::Tensor scores = test::normal_values({30, kExperts}, "scores");
  ScoreMoments parts(kExperts);
  at::Tensor counted = all_of(12);
  counted[11] = false;
  at::Tensor first = scores.narrow(0, 0, 12).clone();
  first[11].fill_(std::nan(""));
  parts.add(first, counted);
  parts.add(scores.narrow(0, 11, 19).to(at::kFloat), all_of(19));
  EXPECT_NEAR(parts.first_direction_share(), share_of(scores), 1e-6);
}

TEST(ScoreMoments, WithoutVarianceThereIsNoDirection) {
  EXPECT_EQ(ScoreMoments(kExperts).first_direction_share(), 0);
  EXPECT_EQ(share_of(test::normal_values({kExperts}, "same").expand({9, kExperts})), 0);
  EXPECT_TRUE(std::isnan(share_of(at::full({3, kExperts}, std::nan("")))));
}

}  // namespace
}  // namespace ballast::inference
