// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/stages.h"

#include <gmock/gmock.h>

#include "ballast/studio/experiments/learning_rates.h"

namespace ballast::experiments {
namespace {

using record::Experiment;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

Experiment two_systems() {
  Experiment experiment;
  experiment.budget_seconds = 100;
  experiment.max_epochs = 4;
  experiment.rates = 3;
  experiment.middle_rate = 2e-3;
  experiment.tokens_per_step = 1000;
  experiment.systems.resize(2);
  for (record::SystemRecord& system : experiment.systems) system.tokens_per_step = 1000;
  experiment.systems[0].id = "fast";
  experiment.systems[1].id = "slow";
  return experiment;
}

Experiment measured() {
  Experiment experiment = two_systems();
  record_step_time(experiment.systems[0], {.seconds = 0.1});
  record_step_time(experiment.systems[1], {.seconds = 0.2});
  fix_steps(experiment, 1e-6);
  return experiment;
}

Experiment trained() {
  Experiment experiment = measured();
  experiment.rates = 1;
  skip_sweeps(experiment);
  for (record::SystemRecord& system : experiment.systems)
    record_trained(system, {1, "runs/" + system.id + "-s1"});
  return experiment;
}

std::vector<std::string> runs_of(const std::vector<Stage>& stages) {
  std::vector<std::string> runs;
  for (const Stage& stage : stages) runs.push_back(stage.run);
  return runs;
}

TEST(Steps, FillTheBudgetOfEachSystem) {
  const Experiment experiment = measured();
  EXPECT_EQ(experiment.training_seconds, 100);
  EXPECT_EQ(experiment.systems[0].steps, 1000);
  EXPECT_EQ(experiment.systems[1].steps, 500);
  EXPECT_EQ(sweep_steps(4000), 800);
  EXPECT_EQ(sweep_steps(500), 400) << "fewer do not tell rates apart";
  EXPECT_EQ(sweep_steps(120), 120);
}

TEST(Steps, RepeatedDataShortensTheBudgetOfAllAlike) {
  Experiment experiment = two_systems();
  record_step_time(experiment.systems[0], {.seconds = 0.1});
  record_step_time(experiment.systems[1], {.seconds = 0.2});
  fix_steps(experiment, 0.008);  // the fast one would see its data 8 times
  EXPECT_EQ(experiment.training_seconds, 50);
  EXPECT_EQ(experiment.systems[0].steps, 500);
  EXPECT_EQ(experiment.systems[1].steps, 250);
}

TEST(Steps, ASystemOfSmallerStepsSeesItsDataLessOften) {
  Experiment experiment = two_systems();
  experiment.systems[0].tokens_per_step = 500;
  record_step_time(experiment.systems[0], {.seconds = 0.1});
  record_step_time(experiment.systems[1], {.seconds = 0.2});
  fix_steps(experiment, 0.008);  // 4 times each
  EXPECT_EQ(experiment.training_seconds, 100);
  EXPECT_EQ(experiment.systems[0].steps, 1000);
}

TEST(Steps, TheWarmUpIsATenthButNeverLessThan200NorMoreThanHalf) {
  EXPECT_EQ(warmup_steps(5000, 5000), 500);
  EXPECT_EQ(warmup_steps(1000, 1000), 200);
  EXPECT_EQ(warmup_steps(300, 300), 150);
  EXPECT_EQ(warmup_steps(1, 1), 1);
  EXPECT_EQ(warmup_steps(1000, 5000), 500) << "a sweep has that of its run";
  EXPECT_EQ(warmup_steps(400, 5000), 200) << "as far as it is long enough";
}

TEST(Steps, OnceFixedStayAndALaterSystemGetsTheSameTime) {
  Experiment experiment = two_systems();
  record_step_time(experiment.systems[0], {.seconds = 0.1});
  fix_steps(experiment, 0.008);
  record_step_time(experiment.systems[1], {.seconds = 0.05});
  fix_steps(experiment, 0.008);
  EXPECT_EQ(experiment.training_seconds, 50);
  EXPECT_EQ(experiment.systems[0].steps, 500);
  EXPECT_EQ(experiment.systems[1].steps, 1000);
}

TEST(Steps, NothingIsFixedBeforeAnythingIsMeasured) {
  Experiment experiment = two_systems();
  fix_steps(experiment, 0.008);
  EXPECT_EQ(experiment.training_seconds, std::nullopt);
}

TEST(Knobs, ATrainingRunDecaysValidatesAndSavesByItsLength) {
  const auto knobs = knobs_of({RunPurpose::kTrain, 1000, 2, 1000, 5e-3, 0.1, {20, 7}});
  EXPECT_EQ(knobs.at("training.steps"), "1000");
  EXPECT_EQ(knobs.at("training.seed"), "2");
  EXPECT_EQ(knobs.at("optimizer.learning_rate"), "0.005");
  EXPECT_EQ(knobs.at("optimizer.warmup_steps"), "200");
  EXPECT_EQ(knobs.at("training.validate_every"), "50");
  EXPECT_EQ(knobs.at("training.validate_batches"), "7");
  EXPECT_EQ(knobs.at("training.last_validate_batches"), "0");
  EXPECT_EQ(knobs.at("checkpoint.every"), "1801");
  const auto swept = knobs_of({RunPurpose::kSweep, 800, 1, 4000, 5e-3, 0.1, {20, 7}});
  EXPECT_EQ(swept.at("optimizer.warmup_steps"), "400") << "that of the whole run";
  EXPECT_EQ(swept.at("training.validate_every"), "0");
  EXPECT_EQ(swept.at("training.last_validate_batches"), "7");
}

TEST(Knobs, StepsAreMeasuredAfterTheWarmUpAtTheFullRate) {
  const auto knobs = knobs_of({RunPurpose::kMeasure, kStepsToMeasure, 1, 0, 5e-3, 0, {}});
  const int64_t settled = kStepsToMeasure - kStepsToMeasure / 3;
  EXPECT_LE(std::stoll(knobs.at("optimizer.warmup_steps")), settled);
  EXPECT_EQ(knobs.at("optimizer.warmup_steps"), "200");
  EXPECT_EQ(knobs.at("optimizer.final_learning_rate"), "1");
  EXPECT_EQ(knobs.at("training.validate_batches"), "1") << "what it validates is not looked at";
}

TEST(Knobs, AllSystemsValidateAsOftenAsTheShortestRunCanBear) {
  const auto of = [](int64_t batches) {  // the shortest run has 500 steps, a batch costs a third
    const Validations found = validations_of(measured(), batches);
    return std::pair(found.times, found.batches);
  };
  EXPECT_THAT(of(3), testing::Pair(20, 0));
  EXPECT_THAT(of(30), testing::Pair(15, 0));
  EXPECT_THAT(of(150), testing::Pair(8, 0));
  EXPECT_THAT(of(1500), testing::Pair(8, 188)) << "not the whole split";
}

TEST(Sweep, TriesRatesAroundTheMiddleThenBeyondAnEdge) {
  const double root = std::sqrt(2.0);
  EXPECT_THAT(rates_to_try({}, 2e-3, 3),
              ElementsAre(DoubleNear(2e-3 / root, 1e-12), 2e-3, DoubleNear(2e-3 * root, 1e-12)));
  std::vector<record::SweptRate> swept = {{2e-3 / root, 10, 3.2}, {2e-3, 10, 3.0}};
  EXPECT_THAT(rates_to_try(swept, 2e-3, 3), ElementsAre(DoubleNear(2e-3 * root, 1e-12)));
  swept.push_back({2e-3 * root, 10, 3.1});
  EXPECT_THAT(rates_to_try(swept, 2e-3, 3), IsEmpty());
  swept.back().loss = 2.9;
  EXPECT_THAT(rates_to_try(swept, 2e-3, 3), ElementsAre(DoubleNear(4e-3, 1e-12)));
  swept.push_back({4e-3, 10, 2.8});
  swept.push_back({4e-3 * root, 10, 2.7});
  EXPECT_THAT(rates_to_try(swept, 2e-3, 3), IsEmpty()) << "two beyond are enough";
  EXPECT_EQ(best_rate(swept), 4e-3 * root);
}

TEST(Sweep, DivergedRatesAreNeverTheBest) {
  std::vector<record::SweptRate> swept = {{1e-3, 10, 3.2}, {2e-3, 10, std::nullopt}};
  EXPECT_EQ(best_rate(swept), 1e-3);
  swept = {{1e-3, 10, std::nullopt}, {2e-3, 10, std::nullopt}, {4e-3, 10, std::nullopt}};
  EXPECT_EQ(best_rate(swept), std::nullopt);
  EXPECT_THAT(
      rates_to_try(
          {{2e-3 / std::sqrt(2.0), 10, {}}, {2e-3, 10, {}}, {2e-3 * std::sqrt(2.0), 10, {}}}, 2e-3,
          3),
      ElementsAre(DoubleNear(1e-3 / std::sqrt(2.0), 1e-12)));
}

TEST(Stages, AllAreMeasuredBeforeAnyIsSwept) {
  Experiment experiment = two_systems();
  EXPECT_THAT(runs_of(next_stages(experiment, {}, {})),
              ElementsAre("measured/fast", "measured/slow"));
  record_step_time(experiment.systems[0], {.seconds = 0.1});
  EXPECT_THAT(runs_of(next_stages(experiment, {}, {})), ElementsAre("measured/slow"));
}

TEST(Stages, ASweepGoesOnWhereItWasStopped) {
  Experiment experiment = measured();
  EXPECT_EQ(next_stages(experiment, {}, {}).size(), 6);
  record::SystemRecord& fast = experiment.systems[0];
  const std::vector<double> rates = learning_rates_around(2e-3, 3);
  record_swept(fast, {rates[0], 400, 3.5}, experiment);
  const std::vector<Stage> left = next_stages(experiment, {}, {});
  EXPECT_EQ(left.size(), 5);
  EXPECT_EQ(left.front().learning_rate, 2e-3);
  EXPECT_EQ(left.front().steps, 400);
  EXPECT_EQ(left.front().run, "sweeps/fast/0.002");
  record_swept(fast, {rates[1], 200, 3.0}, experiment);
  EXPECT_EQ(fast.status, record::Progression::kMeasured);
  record_swept(fast, {rates[2], 200, std::nullopt}, experiment);
  EXPECT_EQ(fast.status, record::Progression::kSwept);
  EXPECT_EQ(fast.learning_rate, 2e-3);
}

TEST(Stages, AFailedSystemDoesNotHoldUpTheOthers) {
  Experiment experiment = two_systems();
  record_step_time(experiment.systems[0], {.seconds = 0.1});
  fix_steps(experiment, 1e-6);
  experiment.rates = 1;
  skip_sweeps(experiment);
  EXPECT_THAT(runs_of(next_stages(experiment, {"slow"}, {})), ElementsAre("runs/fast-s1"));
  EXPECT_THAT(next_stages(experiment, {"slow", "fast"}, {}), IsEmpty());
}

TEST(Stages, FurtherSeedsAreTheBestSystemsAlone) {
  Experiment experiment = trained();
  EXPECT_THAT(next_stages(experiment, {}, {"slow"}), IsEmpty());
  experiment.seeds = 3;
  EXPECT_THAT(runs_of(next_stages(experiment, {}, {"slow"})),
              ElementsAre("runs/slow-s2", "runs/slow-s3"));
  record_trained(experiment.systems[1], {2, "runs/slow-s2"});
  EXPECT_THAT(runs_of(next_stages(experiment, {}, {"slow"})), ElementsAre("runs/slow-s3"));
}

TEST(Stages, AnotherBudgetTakesStepTimesAndRatesOfTheSweptSystems) {
  Experiment first = measured();
  for (const double rate : learning_rates_around(2e-3, 3))
    record_swept(first.systems[0], {rate, 400, std::abs(rate - 2e-3)}, first);
  Experiment second = two_systems();
  second.budget_seconds = 1000;
  take_rates(second, first, "experiments/first");
  EXPECT_EQ(second.rates_from, "experiments/first");
  EXPECT_EQ(second.systems[0].learning_rate, 2e-3);
  EXPECT_EQ(second.systems[0].sweep.size(), 3);
  EXPECT_EQ(second.systems[0].step_seconds, 0.1);
  EXPECT_EQ(second.systems[1].status, record::Progression::kPlanned) << "it was not swept there";
  EXPECT_THAT(runs_of(next_stages(second, {}, {})), ElementsAre("measured/slow"));
  fix_steps(second, 1e-6);
  EXPECT_EQ(second.systems[0].steps, 10'000) << "of its own budget";
  EXPECT_THAT(runs_of(next_stages(second, {"slow"}, {})), ElementsAre("runs/fast-s1"));
}

TEST(Stages, AreCountedAndTheirTimeGoesDown) {
  Experiment experiment = two_systems();
  experiment.budget_seconds = 1000;
  EXPECT_EQ(count_stages(experiment).all, 2 * (1 + 3 + 1));
  EXPECT_EQ(count_stages(experiment).done, 0);
  const double before = seconds_left(experiment);
  EXPECT_GT(before, 2 * 1000 * (1 + 3 * kSweepShare));
  for (record::SystemRecord& system : experiment.systems)
    record_step_time(system, {.seconds = 0.1});
  EXPECT_EQ(count_stages(experiment).done, 2);
  EXPECT_LT(seconds_left(experiment), before);
  experiment = trained();
  EXPECT_EQ(count_stages(experiment).done, count_stages(experiment).all);
  EXPECT_EQ(seconds_left(experiment), 0);
  experiment.seeds = 2;
  EXPECT_EQ(count_stages(experiment).all, 6);
  EXPECT_GT(seconds_left(experiment), 200);
}

}  // namespace
}  // namespace ballast::experiments
