// SPDX-License-Identifier: Apache-2.0
#include "ballast/experiments/stages.h"

#include <gmock/gmock.h>

#include "ballast/experiments/learning_rates.h"

namespace ballast {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

Experiment two_systems() {
  Experiment experiment;
  experiment.budget_seconds = 100;
  experiment.max_epochs = 4;
  experiment.rates = 3;
  experiment.middle_rate = 2e-3;
  experiment.systems.resize(2);
  experiment.systems[0].id = "fast";
  experiment.systems[1].id = "slow";
  return experiment;
}

Experiment measured() {
  Experiment experiment = two_systems();
  record_step_time(experiment.systems[0], 0.1, {});
  record_step_time(experiment.systems[1], 0.2, {});
  fix_steps(experiment, 1e-6);
  return experiment;
}

Experiment trained() {
  Experiment experiment = measured();
  experiment.rates = 1;
  skip_sweeps(experiment);
  for (SystemRecord& system : experiment.systems)
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
  EXPECT_EQ(sweep_steps(500), 200) << "fewer do not tell rates apart";
  EXPECT_EQ(sweep_steps(120), 120);
}

TEST(Steps, RepeatedDataShortensTheBudgetOfAllAlike) {
  Experiment experiment = two_systems();
  record_step_time(experiment.systems[0], 0.1, {});
  record_step_time(experiment.systems[1], 0.2, {});
  fix_steps(experiment, 0.008);  // the fast one would see its data 8 times
  EXPECT_EQ(experiment.training_seconds, 50);
  EXPECT_EQ(experiment.systems[0].steps, 500);
  EXPECT_EQ(experiment.systems[1].steps, 250);
}

TEST(Steps, OnceFixedStayAndALaterSystemGetsTheSameTime) {
  Experiment experiment = two_systems();
  record_step_time(experiment.systems[0], 0.1, {});
  fix_steps(experiment, 0.008);
  record_step_time(experiment.systems[1], 0.05, {});
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
  EXPECT_EQ(knobs.at("optimizer.warmup_steps"), "100");
  EXPECT_EQ(knobs.at("training.validate_every"), "50");
  EXPECT_EQ(knobs.at("training.validate_batches"), "7");
  EXPECT_EQ(knobs.at("training.last_validate_batches"), "0");
  EXPECT_EQ(knobs.at("checkpoint.every"), "1801");
  const auto swept = knobs_of({RunPurpose::kSweep, 200, 1, 1000, 5e-3, 0.1, {20, 7}});
  EXPECT_EQ(swept.at("optimizer.warmup_steps"), "100") << "that of the whole run";
  EXPECT_EQ(swept.at("training.validate_every"), "0");
  EXPECT_EQ(swept.count("training.last_validate_batches"), 0);
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
  std::vector<SweptRate> swept = {{2e-3 / root, 10, 3.2}, {2e-3, 10, 3.0}};
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
  std::vector<SweptRate> swept = {{1e-3, 10, 3.2}, {2e-3, 10, std::nullopt}};
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
  record_step_time(experiment.systems[0], 0.1, {});
  EXPECT_THAT(runs_of(next_stages(experiment, {}, {})), ElementsAre("measured/slow"));
}

TEST(Stages, ASweepGoesOnWhereItWasStopped) {
  Experiment experiment = measured();
  EXPECT_EQ(next_stages(experiment, {}, {}).size(), 6);
  SystemRecord& fast = experiment.systems[0];
  const std::vector<double> rates = learning_rates_around(2e-3, 3);
  record_swept(fast, {rates[0], 200, 3.5}, experiment);
  const std::vector<Stage> left = next_stages(experiment, {}, {});
  EXPECT_EQ(left.size(), 5);
  EXPECT_EQ(left.front().learning_rate, 2e-3);
  EXPECT_EQ(left.front().steps, 200);
  EXPECT_EQ(left.front().run, "sweeps/fast/0.002");
  record_swept(fast, {rates[1], 200, 3.0}, experiment);
  EXPECT_EQ(fast.status, Progression::kMeasured);
  record_swept(fast, {rates[2], 200, std::nullopt}, experiment);
  EXPECT_EQ(fast.status, Progression::kSwept);
  EXPECT_EQ(fast.learning_rate, 2e-3);
}

TEST(Stages, AFailedSystemDoesNotHoldUpTheOthers) {
  Experiment experiment = two_systems();
  record_step_time(experiment.systems[0], 0.1, {});
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

TEST(Stages, AreCountedAndTheirTimeGoesDown) {
  Experiment experiment = two_systems();
  experiment.budget_seconds = 1000;
  EXPECT_EQ(count_stages(experiment).all, 2 * (1 + 3 + 1));
  EXPECT_EQ(count_stages(experiment).done, 0);
  const double before = seconds_left(experiment);
  EXPECT_GT(before, 2 * 1000 * (1 + 3 * kSweepShare));
  for (SystemRecord& system : experiment.systems) record_step_time(system, 0.1, {});
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
}  // namespace ballast
