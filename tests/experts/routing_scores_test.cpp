// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/routing_scores.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::experts {
namespace {

using at::Tensor;

// Against plain operations, of the same numbers in the same type: equal to the bit.
void expect_as_plain(const at::TensorOptions& options) {
  at::manual_seed(6);
  for (const auto& [tokens, experts] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {7, 4}, {65, 33}, {300, 128}, {0, 8}}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens, " << experts << " experts");
    const Tensor affinities = at::randn({tokens, experts}, at::kDouble).to(options);
    Tensor lengths = at::rand({experts}, at::kDouble).to(options);
    lengths[0] = 0;
    const Tensor rows = at::randperm(tokens, at::kLong);
    for (const Tensor& divided_by : {Tensor(), lengths}) {
      for (const Tensor& row_of_position : {Tensor(), rows.to(options.device())}) {
        Tensor expected = affinities;
        if (divided_by.defined()) expected = expected / divided_by.clamp_min(1e-20);
        if (row_of_position.defined()) expected = expected.index_select(0, row_of_position);
        expected = expected.to(at::kFloat);
        const RoutingScores got = routing_scores(affinities, divided_by, row_of_position);
        EXPECT_TRUE(at::equal(got.scores, expected));
        ASSERT_EQ(got.best.scalar_type(), at::kInt);
        if (tokens == 0) continue;
        EXPECT_TRUE(at::equal(got.best.to(at::kLong), expected.argmax(1)));
      }
    }
  }
}

void expect_first_of_equals(at::Device device) {
  Tensor scores = at::zeros({4, 70}, device);
  scores[1][69] = scores[1][35] = 1;
  scores[2].fill_(-INFINITY);
  scores[3].fill_(NAN);
  const Tensor best = routing_scores(scores, {}, {}).best.cpu();
  EXPECT_EQ(best[0].item<int>(), 0);
  EXPECT_EQ(best[1].item<int>(), 35);
  EXPECT_EQ(best[2].item<int>(), 0);
  EXPECT_EQ(best[3].item<int>(), 0);
}

TEST(RoutingScores, EqualTheirTwin) {
  expect_as_plain(at::kFloat);
  expect_as_plain(at::kDouble);
}

TEST(RoutingScores, OfEqualExpertsTheFirstIsBest) { expect_first_of_equals(at::kCPU); }

TEST(RoutingScores, RefuseWhatDoesNotFit) {
  EXPECT_THROW(routing_scores(at::zeros({4}), {}, {}), c10::Error);
  EXPECT_THROW(routing_scores(at::zeros({4, 3}), at::ones({4}), {}), c10::Error);
  EXPECT_THROW(routing_scores(at::zeros({4, 3}), at::ones({3}, at::kDouble), {}), c10::Error);
}

TEST(RoutingScoresCuda, EqualTheirTwin) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_as_plain(at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  expect_as_plain(at::TensorOptions(at::kCUDA).dtype(at::kDouble));
}

TEST(RoutingScoresCuda, OfEqualExpertsTheFirstIsBest) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_first_of_equals(at::kCUDA);
}

}  // namespace
}  // namespace ballast::experts
