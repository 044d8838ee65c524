// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/run_outcome.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "ballast/system/file.h"
#include "tests/support/temporary_folder.h"

namespace ballast::experiments {
namespace {

class Outcome : public testing::Test {
 protected:
  RunOutcome of(const std::string& metrics) const {
    write_text_atomically(run_ / "metrics.jsonl", metrics);
    return read_outcome(run_.path());
  }

  const test::TemporaryFolder run_;
};

constexpr const char* kTwoSteps =
    R"({"step":1,"loss":5.0,"tokens":100,"seconds":0.5,"tokens_per_second":200}
{"step":2,"loss":4.0,"tokens":200,"seconds":0.75,"tokens_per_second":400}
)";

TEST_F(Outcome, OfNothingIsNothing) {
  const RunOutcome outcome = read_outcome(run_.path());
  EXPECT_EQ(outcome.step, 0);
  EXPECT_FALSE(outcome.best());
  EXPECT_FALSE(outcome.settled_step_seconds());
}

TEST_F(Outcome, HasStepsAndTimes) {
  const RunOutcome outcome = of(kTwoSteps);
  EXPECT_EQ(outcome.step, 2);
  EXPECT_EQ(outcome.tokens, 200);
  EXPECT_EQ(outcome.seconds, 0.75);
  EXPECT_THAT(outcome.step_seconds, testing::ElementsAre(0.5, 0.25));
  EXPECT_FALSE(outcome.settled_step_seconds()) << "two are too few";
}

TEST_F(Outcome, TheSettledPartsAreMeansOfTheLastThird) {
  std::string text;
  for (const double seconds : {9.0, 8.0, 7.0, 6.0, 1.0, 3.0})
    text += fmt::format("{{\"step\":1,\"loss\":1,\"parts\":{{\"experts\":{}}}}}\n", seconds);
  EXPECT_THAT(of(text).settled_step_parts(), testing::ElementsAre(testing::Pair("experts", 2.0)));
  EXPECT_THAT(of(kTwoSteps).settled_step_parts(), testing::IsEmpty());
}

TEST_F(Outcome, ATornLastLineIsPassedOver) {
  EXPECT_EQ(of(fmt::format("{}{}", kTwoSteps, R"({"step":3,"loss":3.)")).step, 2);
}

// Steps of 100 tokens that take so long.
std::string lines_of(const std::vector<double>& seconds) {
  std::string text;
  for (size_t i = 0; i < seconds.size(); ++i)
    text += fmt::format("{{\"step\":{},\"loss\":1,\"tokens\":{},\"tokens_per_second\":{}}}\n",
                        i + 1, 100 * (i + 1), 100 / seconds[i]);
  return text;
}

TEST_F(Outcome, StepsAreTimedSoonAfterTheStartAndOnceTheyHaveSettled) {
  std::vector<double> seconds(30, 4.0);
  std::fill_n(seconds.begin(), 3, 100.0);  // memory, graphs
  std::fill_n(seconds.begin() + 3, 7, 8.0);
  std::fill(seconds.begin() + 20, seconds.end(), 2.0);
  seconds.back() = 50;
  const RunOutcome outcome = of(lines_of(seconds));
  EXPECT_EQ(outcome.early_step_seconds(), 8.0);
  EXPECT_EQ(outcome.settled_step_seconds(), 2.0);
}

TEST_F(Outcome, OfFewStepsTheFirstTwoAreNotMeasured) {
  const RunOutcome few = of(lines_of({100, 100, 8, 2, 2, 2}));
  EXPECT_EQ(few.early_step_seconds(), 8.0);
  EXPECT_EQ(few.settled_step_seconds(), 2.0);
  EXPECT_EQ(of(lines_of({100, 100, 8, 2, 2})).settled_step_seconds(), std::nullopt);
  EXPECT_EQ(of(lines_of({100, 100})).early_step_seconds(), std::nullopt);
}

TEST_F(Outcome, GreedyAndPricedAreToldApartWhicheverIsFirst) {
  const auto validation = [](const char* other) {
    const char* const first =
        R"({"step":2,"valid_loss":3.5,"experts":[{"busiest_share":2.5},{"busiest_share":1.5}],)";
    return fmt::format("{}{}\"other_routing\":{{\"routing\":\"{}\",{}}}}}\n", kTwoSteps, first,
                       other, R"("loss":3.25,"experts":[{"busiest_share":1.25}])");
  };
  const RunOutcome greedy_first = of(validation("priced"));
  EXPECT_EQ(greedy_first.greedy->loss, 3.5);
  EXPECT_EQ(greedy_first.greedy->busiest, 2.5);
  EXPECT_EQ(greedy_first.priced->loss, 3.25);
  EXPECT_EQ(greedy_first.best()->busiest, 1.25);
  const RunOutcome priced_first = of(validation("greedy"));
  EXPECT_EQ(priced_first.priced->loss, 3.5);
  EXPECT_EQ(priced_first.best()->loss, 3.25);
}

TEST_F(Outcome, LossesThatAreNotFiniteAreNone) {
  const RunOutcome outcome = of(
      R"({"step":1,"loss":null,"tokens":100,"tokens_per_second":9,"skip_reason":"the loss is nan"}
{"step":1,"valid_loss":null}
)");
  EXPECT_TRUE(outcome.was_skipped);
  EXPECT_FALSE(outcome.best());
  EXPECT_TRUE(outcome.validations.empty());
}

}  // namespace
}  // namespace ballast::experiments
