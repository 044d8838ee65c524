// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/comparison.h"

#include <gmock/gmock.h>

#include "ballast/model/model_size.h"
#include "ballast/system/error.h"

namespace ballast::experiments {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ComparisonRequest request_of(const std::string& name) {
  ComparisonRequest request;
  request.name = name;
  request.blocks.model = {.vocabulary = 1024, .width = 64, .layers = 4, .heads = 4, .context = 128};
  return request;
}

std::vector<std::string> ids_of(const PlannedComparison& comparison) {
  std::vector<std::string> ids;
  for (const ComparedSystem& system : comparison.systems) ids.push_back(system.id);
  return ids;
}

const ComparedSystem& find(const PlannedComparison& comparison, const std::string& id) {
  for (const ComparedSystem& system : comparison.systems) {
    if (system.id == id) return system;
  }
  throw std::out_of_range(id);
}

std::string refusal_of(const ComparisonRequest& request) {
  try {
    describe_comparison(request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Comparisons, DenseModelsAreTheSameInEachPanel) {
  const PlannedComparison dense = describe_comparison(request_of("dense"));
  ASSERT_EQ(dense.panels.size(), 3);
  EXPECT_THAT(dense.panels[0].systems, ElementsAre("base-x1-e8", "dense-l5", "dense-x2"));
  EXPECT_THAT(dense.panels[1].systems, ElementsAre("base-x1-e32", "dense-l5", "dense-x2"));
  EXPECT_THAT(dense.panels[2].systems,
              ElementsAre("base-x1-e128", "dense-l5", "dense-x2", "dense-x4"));
  EXPECT_EQ(dense.panels[1].title, "32 experts");
  EXPECT_THAT(ids_of(dense), ElementsAre("base-x1-e8", "dense-l5", "dense-x2", "base-x1-e32",
                                         "base-x1-e128", "dense-x4"));
}

TEST(Comparisons, LargerModelsAreDividedWhereThereAreWorkersForIt) {
  ComparisonRequest request = request_of("dense");
  EXPECT_EQ(find(describe_comparison(request), "dense-x2").title, "Dense, 2 times as large");
  request.workers = 2;
  const PlannedComparison two = describe_comparison(request);
  EXPECT_EQ(find(two, "dense-x2").title, "Model parallel x2");
  EXPECT_EQ(find(two, "dense-x2").config.training.model_parallel, 2);
  EXPECT_EQ(find(two, "dense-x4").config.training.model_parallel, 1);
  EXPECT_EQ(find(two, "dense-x4").title, "Dense, 4 times as large");
}

// A replica of the paper's has the batch of one worker, so that all of them have less.
TEST(Comparisons, LargerModelsHaveTheirPartOfTheBatch) {
  ComparisonRequest request = request_of("dense");
  request.blocks.training.batch = 48;
  request.blocks.training.micro_steps = 8;
  const PlannedComparison dense = describe_comparison(request);
  EXPECT_EQ(find(dense, "dense-l5").config.training.batch, 48);
  EXPECT_EQ(find(dense, "dense-x2").config.training.batch, 24);
  EXPECT_EQ(find(dense, "dense-x2").config.training.micro_steps, 8);
  EXPECT_EQ(find(dense, "dense-x4").config.training.batch, 12);
  EXPECT_EQ(find(dense, "dense-x4").config.training.micro_steps, 4);
  EXPECT_EQ(records_of(dense).front().tokens_per_step, 48 * 128);
  EXPECT_EQ(records_of(dense).back().tokens_per_step, 12 * 128) << "dense-x4";
}

// Rates of 8 GPUs and of 128 do not compare: a dense model that stands in three panels has three.
TEST(Comparisons, RowsOfAPanelArePlannedForOneCluster) {
  const PlannedComparison dense = describe_comparison(request_of("dense"));
  const std::vector<int64_t> workers = {8, 32, 128};
  std::vector<double> rates;
  for (size_t i = 0; i < workers.size(); ++i) {
    const record::PanelRecord& panel = dense.panels[i];
    ASSERT_TRUE(panel.plan);
    EXPECT_EQ(panel.plan->workers, workers[i]);
    EXPECT_EQ(panel.plan->device, "v100");
    EXPECT_EQ(panel.plan->tokens_per_second.size(), panel.systems.size());
    for (const std::string& id : panel.systems) EXPECT_GT(panel.plan->tokens_per_second.at(id), 0);
    rates.push_back(panel.plan->tokens_per_second.at("dense-l5"));
  }
  // Each worker has the whole batch: four times the workers do nearly four times the tokens.
  EXPECT_GT(rates[1], 2 * rates[0]);
  EXPECT_GT(rates[2], 2 * rates[1]);
}

TEST(Comparisons, WhatTheClusterCannotRunHasNoPlan) {
  ComparisonRequest request = request_of("dense");
  request.experts = {3, 200};  // 3 GPUs hold no pairs, 128 do not divide 200 experts
  const PlannedComparison dense = describe_comparison(request);
  EXPECT_EQ(dense.panels[0].plan->workers, 3);
  EXPECT_THAT(dense.panels[0].plan->tokens_per_second,
              ElementsAre(testing::Key("base-x1-e3"), testing::Key("dense-l5")));
  EXPECT_EQ(dense.panels[1].plan->workers, 128);
  EXPECT_THAT(dense.panels[1].plan->tokens_per_second,
              testing::AllOf(Contains(testing::Key("dense-x2")),
                             Not(Contains(testing::Key("base-x1-e200")))));
}

TEST(Comparisons, OthersHaveThePapersSystems) {
  ComparisonRequest request = request_of("sparse");
  request.usual_experts = 8;
  EXPECT_THAT(ids_of(describe_comparison(request)),
              ElementsAre("base-x3-e8", "base-in-place-e8", "base-paper-e8", "sparsely-gated-e8",
                          "switch-e8"));
  request.name = "expert-size";
  EXPECT_THAT(ids_of(describe_comparison(request)),
              ElementsAre("base-small-e8", "base-x1-e8", "base-large-e8"));
  request.name = "routing";
  EXPECT_THAT(
      ids_of(describe_comparison(request)),
      ElementsAre("base-x1-e8", "base-x1-paper-e8", "sparsely-gated-deep-e8", "switch-deep-e8"));
  request.name = "overview";
  request.experts = {8};
  EXPECT_THAT(ids_of(describe_comparison(request)),
              ElementsAre("dense", "dense-l6", "base-x1-e8", "base-x2-e8", "base-x3-e8",
                          "base-in-place-e8", "base-paper-e8", "sparsely-gated-e8", "switch-e8"));
}

// With the GPU's width of 128 and 8 blocks, for which frames were first compared.
ComparisonRequest frames_of_32() {
  ComparisonRequest request = request_of("frames");
  request.blocks.model = {.vocabulary = 8192, .width = 128, .layers = 8, .heads = 4};
  request.blocks.training.batch = 128;
  request.experts = {32};
  return request;
}

TEST(Comparisons, FramesDifferInTheRouterAtEqualOperations) {
  const PlannedComparison frames = describe_comparison(frames_of_32());
  EXPECT_THAT(ids_of(frames),
              ElementsAre("dense", "dense-l10", "base-paper-e32", "sparsely-gated-e32",
                          "switch-e32", "base-in-place-near-e32", "base-in-place-e32",
                          "base-top2-e64", "base-shared-e32"));
  EXPECT_EQ(frames.systems.front().title, "Dense, equal FLOPs");
  const double wanted = model::model_size(find(frames, "base-in-place-e32").config).flops_per_token;
  for (const char* id : {"dense", "base-paper-e32", "switch-e32", "base-in-place-near-e32",
                         "base-top2-e64", "base-shared-e32"}) {
    const double flops = model::model_size(find(frames, id).config).flops_per_token;
    EXPECT_NEAR(flops / wanted, 1, 0.02) << id;
  }
}

TEST(Comparisons, RoutersHaveTheFrameThatTheirTitlesTell) {
  const PlannedComparison frames = describe_comparison(frames_of_32());
  const auto experts = [&](const char* id) { return find(frames, id).config.experts; };
  const config::ExpertsConfig paper = experts("base-paper-e32"), gate = experts("switch-e32"),
                              near = experts("base-in-place-near-e32"),
                              ahead = experts("base-in-place-e32");
  EXPECT_EQ(config::frame_in_words(paper), "raw features, sigmoid gate, dot scores");
  EXPECT_EQ(paper.solver, config::TrainingSolver::kAuction);
  EXPECT_EQ(paper.tested_routing(), config::TestRouting::kGreedy);
  EXPECT_EQ(config::frame_in_words(gate), "normed features, softmax gate, dot scores");
  EXPECT_EQ(config::frame_in_words(ahead), config::frame_in_words(config::ExpertsConfig()));
  EXPECT_TRUE(ahead.look_ahead);
  EXPECT_EQ(config::frame_in_words(ahead), config::frame_in_words(near) + ", look-ahead");
  EXPECT_EQ(experts("base-top2-e64").experts_of_token(), 2);
  EXPECT_EQ(experts("base-shared-e32").width_of_shared(find(frames, "dense").config.model), 256);
  for (const config::ExpertsConfig& each : {paper, gate, near, ahead})
    EXPECT_EQ(each.placement, config::Placement::kReplace);
}

TEST(Comparisons, GroupsHaveAbout2048TokensUnlessToldOtherwise) {
  ComparisonRequest request = frames_of_32();
  EXPECT_EQ(find(describe_comparison(request), "switch-e32").config.experts.groups, 16);
  EXPECT_EQ(find(describe_comparison(request), "base-top2-e64").config.experts.groups, 16);
  EXPECT_TRUE(find(describe_comparison(request), "base-in-place-e32").config.experts.shuffle);
  request.workers = 32;
  EXPECT_EQ(find(describe_comparison(request), "switch-e32").config.experts.groups, 32);
  request.workers = 1;
  request.blocks.experts.groups = 4;
  EXPECT_EQ(find(describe_comparison(request), "switch-e32").config.experts.groups, 4);
}

TEST(Comparisons, FiveLayersOfExpertsGetTheBlocksTheyNeed) {
  ComparisonRequest request = request_of("placement");
  request.usual_experts = 8;
  const PlannedComparison placement = describe_comparison(request);
  EXPECT_THAT(ids_of(placement),
              ElementsAre("base-top-l6-s6-e8", "base-x1-l6-s6-e8", "base-x2-l6-s6-e8",
                          "base-x3-l6-s6-e8", "base-x5-l6-s6-e8"));
  EXPECT_EQ(find(placement, "base-x1-l6-s6-e8").config.experts.sublayers, 6);
  EXPECT_EQ(find(placement, "base-x3-l6-s6-e8").config.experts.sublayers, 2);
  EXPECT_EQ(find(placement, "base-x5-l6-s6-e8").config.experts.sublayers, 1);
  request.blocks.model.layers = 24;
  request.sublayers = 10;
  EXPECT_THAT(ids_of(describe_comparison(request)),
              ElementsAre("base-top-e8", "base-x1-e8", "base-x2-e8", "base-x3-e8", "base-x5-e8"));
}

TEST(Comparisons, AllHasThePanelsOfEachAndTrainsNoModelTwice) {
  const PlannedComparison all = describe_comparison(request_of("all"));
  EXPECT_EQ(all.panels.size(), 3 + 1 + 1 + 1 + 1 + 3 + 1);
  std::vector<std::string> ids = ids_of(all);
  std::ranges::sort(ids);
  EXPECT_TRUE(std::ranges::adjacent_find(ids) == ids.end());
  EXPECT_THAT(all.panels[3].title, HasSubstr("sparse"));
  EXPECT_THAT(ids, Contains("base-x3-e128"));
}

TEST(Comparisons, SomeSystemsAreChosenByIdWithOrWithoutExperts) {
  ComparisonRequest request = request_of("dense");
  request.only = {"base-x1", "dense-x4"};
  const PlannedComparison some = describe_comparison(request);
  EXPECT_THAT(ids_of(some), ElementsAre("base-x1-e8", "base-x1-e32", "base-x1-e128", "dense-x4"));
  EXPECT_THAT(some.panels[0].systems, ElementsAre("base-x1-e8"));
  request.only = {"dense"};
  EXPECT_THAT(refusal_of(request), AllOf(HasSubstr("no \"dense\""), HasSubstr("dense-x2")));
}

TEST(Comparisons, WhatCannotBeMadeIsRefusedByName) {
  EXPECT_THAT(refusal_of(request_of("dens")), AllOf(HasSubstr("\"dens\""), HasSubstr("overview")));
  ComparisonRequest request = request_of("sparse");
  request.experts = {6};
  request.workers = 4;
  EXPECT_THAT(refusal_of(request), AllOf(HasSubstr("BASE x3"), HasSubstr("experts.count")));
}

TEST(Comparisons, RecordsHoldTheKnobsThatMakeTheSameModelAgain) {
  ComparisonRequest request = request_of("overview");
  request.experts = {8};
  request.blocks.data.train = {"a", "b:2"};
  request.blocks.optimizer.beta2 = 0.95;
  request.blocks.training.steps = 77;
  const PlannedComparison overview = describe_comparison(request);
  const std::vector<record::SystemRecord> records = records_of(overview);
  ASSERT_EQ(records.size(), overview.systems.size());
  for (size_t i = 0; i < records.size(); ++i) {
    config::Config again;
    for (const auto& [key, value] : records[i].knobs) config::set_knob(again, key, value);
    EXPECT_EQ(records[i].knobs.count("training.steps"), 0);
    again.training.steps = 77;
    EXPECT_THAT(config::differences(overview.systems[i].config, again), testing::IsEmpty());
    EXPECT_EQ(records[i].parameters, model::model_size(again).total);
    EXPECT_EQ(records[i].status, record::Progression::kPlanned);
  }
  EXPECT_EQ(records[0].kind, "dense");
  EXPECT_EQ(records[0].experts, std::nullopt);
  EXPECT_EQ(records[7].kind, "sparsely_gated");
  EXPECT_EQ(records[7].experts, 8);
  EXPECT_THAT(records[0].knobs, Not(Contains(testing::Key("experts.count"))));
}

}  // namespace
}  // namespace ballast::experiments
