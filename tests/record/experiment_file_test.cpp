// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/experiment_file.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "tests/support/temporary_folder.h"

namespace ballast::record {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

SystemRecord base_record() {
  SystemRecord system;
  system.id = "base-x1-e8";
  system.title = "BASE x1";
  system.words = "BASE x1";
  system.kind = "base";
  system.experts = 8;
  system.knobs = {{"model.width", "64"}, {"experts.layers", "1"}};
  system.parameters = 1000;
  system.active = 300;
  system.flops_per_token = 1800.5;
  system.tokens_per_step = 2048;
  system.step_seconds = 0.0125;
  system.early_step_seconds = 0.02;
  system.step_parts = {{"experts", 0.005}};
  system.steps = 800;
  system.sweep = {{1e-3, 80, 3.5}, {2e-3, 80, std::nullopt}};
  system.learning_rate = 1e-3;
  system.runs = {{1, "runs/base-x1-e8-s1"}};
  system.status = Progression::kTrained;
  return system;
}

Experiment example() {
  Experiment experiment;
  experiment.name = "dense";
  experiment.title = "BASE layers beside dense models";
  experiment.budget_seconds = 10;
  experiment.training_seconds = 9.5;
  experiment.max_epochs = 4;
  experiment.workers = 2;
  experiment.rates = 3;
  experiment.seeds = 2;
  experiment.at_once = 2;
  experiment.tokens_per_step = 2048;
  experiment.rates_from = "experiments/first";
  experiment.data = "builtin";
  experiment.program_version = "1";
  experiment.hardware = R"({"cores":2})";
  experiment.panels = {{"8 experts",
                        {"base-x1-e8", "dense"},
                        ClusterEstimate{8, "v100", "infiniband", {{"base-x1-e8", 545e3}}}}};
  SystemRecord dense;
  dense.id = "dense";
  dense.kind = "dense";
  experiment.systems = {base_record(), dense};
  return experiment;
}

class ExperimentFile : public testing::Test {
 protected:
  fs::path file() const { return folder_ / "experiment.json"; }
  // Saved, changed as JSON, and written back.
  void save_changed(const std::function<void(ordered_json&)>& change) const {
    save_experiment(file(), example());
    ordered_json record = ordered_json::parse(read_text(file()));
    change(record);
    write_text_atomically(file(), record.dump());
  }
  std::string refusal() const {
    try {
      load_experiment(file());
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  const test::TemporaryFolder folder_;
};

TEST_F(ExperimentFile, ReadBackItIsTheSame) {
  const Experiment saved = example();
  save_experiment(file(), saved);
  const std::string text = read_text(file());
  const Experiment read = load_experiment(file());
  save_experiment(file(), read);
  EXPECT_EQ(read_text(file()), text);
  EXPECT_THAT(differences(saved, read), IsEmpty());
  const SystemRecord& base = read.systems.at(0);
  EXPECT_EQ(base.step_seconds, 0.0125);
  EXPECT_EQ(base.early_step_seconds, 0.02);
  EXPECT_EQ(read.rates_from, "experiments/first");
  EXPECT_EQ(base.step_parts.at("experts"), 0.005);
  EXPECT_EQ(base.steps, 800);
  EXPECT_EQ(base.sweep.at(0).loss, 3.5);
  EXPECT_EQ(base.sweep.at(1).loss, std::nullopt);
  EXPECT_EQ(base.status, Progression::kTrained);
  EXPECT_EQ(read.panels.at(0).plan->workers, 8);
  EXPECT_THAT(read.panels.at(0).plan->tokens_per_second,
              ElementsAre(testing::Pair("base-x1-e8", 545e3)));
  EXPECT_EQ(base.knobs.at("model.width"), "64");
  const SystemRecord& dense = read.systems.at(1);
  EXPECT_EQ(dense.experts, std::nullopt);
  EXPECT_EQ(dense.step_seconds, std::nullopt);
  EXPECT_EQ(dense.status, Progression::kPlanned);
  EXPECT_EQ(read.training_seconds, 9.5);
}

TEST_F(ExperimentFile, HasTheKeysThatReportsRead) {
  save_experiment(file(), example());
  const ordered_json record = ordered_json::parse(read_text(file()));
  EXPECT_EQ(record["format"], "ballast-experiment");
  EXPECT_EQ(record["hardware"]["cores"], 2);
  EXPECT_EQ(record["panels"][0]["systems"][1], "dense");
  const ordered_json& base = record["systems"][0];
  EXPECT_EQ(base["tokens"], 800 * 2048);
  EXPECT_EQ(base["runs"][0]["run"], "runs/base-x1-e8-s1");
  EXPECT_EQ(base["status"], "trained");
  EXPECT_TRUE(base["sweep"][1]["loss"].is_null());
  EXPECT_TRUE(record["systems"][1]["steps"].is_null());
  EXPECT_EQ(record["panels"][0]["plan"]["tokens_per_second"]["base-x1-e8"], 545e3);
}

// Seen while fuzzing: such numbers were cast or multiplied beyond what fits.
TEST_F(ExperimentFile, CountsBeyondWholeNumbersAreRefused) {
  const std::function<void(ordered_json&)> changes[] = {
      [](ordered_json& record) { record["workers"] = 1e300; },
      [](ordered_json& record) { record["systems"][0]["parameters"] = 1e300; },
      [](ordered_json& record) { record["systems"][0]["runs"][0]["seed"] = -1e300; },
      [](ordered_json& record) { record["systems"][0]["steps"] = INT64_MAX; }};
  for (const auto& change : changes) {
    save_changed(change);
    EXPECT_THAT(refusal(), HasSubstr("damaged"));
  }
}

TEST_F(ExperimentFile, ATornFileIsRefusedByName) {
  save_experiment(file(), example());
  const std::string text = read_text(file());
  for (const size_t length : {size_t{0}, size_t{1}, text.size() / 2, text.size() - 4}) {
    write_text_atomically(file(), text.substr(0, length));
    EXPECT_THAT(refusal(), AllOf(HasSubstr(file().string()), HasSubstr("damaged"))) << length;
  }
}

TEST_F(ExperimentFile, DamagedValuesAreRefused) {
  const std::vector<std::function<void(ordered_json&)>> damages = {
      [](ordered_json& record) { record.erase("systems"); },
      [](ordered_json& record) { record["format"] = "ballast-run"; },
      [](ordered_json& record) { record["budget_seconds"] = "long"; },
      [](ordered_json& record) { record["systems"][0].erase("id"); },
      [](ordered_json& record) { record["systems"][0]["status"] = "lost"; },
      [](ordered_json& record) {
        record["systems"][0]["knobs"] = {1, 2};
      },
      [](ordered_json& record) { record["systems"][0]["runs"] = {7}; },
      [](ordered_json& record) { record["panels"][0]["systems"][0] = "unknown"; },
      [](ordered_json& record) {
        record["panels"][0]["plan"] = {{"workers", 8}};
      }};
  for (size_t i = 0; i < damages.size(); ++i) {
    save_changed(damages[i]);
    EXPECT_THAT(refusal(), HasSubstr("damaged")) << i;
  }
}

TEST_F(ExperimentFile, ANewerFormatAsksForANewerProgram) {
  save_changed([](ordered_json& record) { record["version"] = 3; });
  EXPECT_THAT(refusal(), HasSubstr("use a newer ballast"));
}

TEST_F(ExperimentFile, ARecordOfVersion1IsReadWithoutItsPlans) {
  save_changed([](ordered_json& record) {
    record["version"] = 1;
    record["panels"][0].erase("plan");
    record["systems"][0]["plan"] = {{"workers", 128}, {"tokens_per_second", 545e3}};
  });
  const Experiment read = load_experiment(file());
  EXPECT_EQ(read.panels.at(0).plan, std::nullopt);
  EXPECT_THAT(differences(example(), read), IsEmpty());
}

TEST_F(ExperimentFile, RecordsBeforeSystemsHadTheirOwnStepsAreRead) {
  save_changed([](ordered_json& record) {
    record.erase("rates_from");
    for (ordered_json& system : record["systems"]) {
      system.erase("tokens_per_step");
      system.erase("early_step_seconds");
    }
  });
  const Experiment read = load_experiment(file());
  EXPECT_EQ(read.systems.at(0).tokens_per_step, 2048);
  EXPECT_EQ(read.systems.at(0).early_step_seconds, std::nullopt);
  EXPECT_EQ(read.rates_from, "");
}

TEST_F(ExperimentFile, WhatCannotBeChangedUnderWayIsNamed) {
  Experiment wanted = example();
  wanted.budget_seconds = 20;
  wanted.rates = 5;
  EXPECT_THAT(differences(example(), wanted),
              ElementsAre("--budget: 10s -> 20s", "--rates: 3 -> 5"));
  wanted = example();
  wanted.systems.pop_back();
  EXPECT_THAT(differences(example(), wanted),
              ElementsAre("systems: base-x1-e8, dense -> base-x1-e8"));
  wanted = example();
  wanted.systems[0].knobs = {{"model.width", "64"}, {"model.heads", "2"}};
  EXPECT_THAT(differences(example(), wanted),
              ElementsAre("experts.layers of base-x1-e8: 1 -> its default",
                          "model.heads of base-x1-e8: its default -> 2"));
}

TEST_F(ExperimentFile, MoreSeedsAndAnotherNumberAtOnceCanGoOn) {
  Experiment wanted = example();
  wanted.seeds = 5;
  wanted.at_once = 1;
  wanted.program_version = "2";
  wanted.hardware = "{}";
  EXPECT_THAT(differences(example(), wanted), IsEmpty());
  wanted.seeds = 1;
  EXPECT_THAT(differences(example(), wanted), ElementsAre("--seeds: 2 -> 1"));
}

}  // namespace
}  // namespace ballast::record
