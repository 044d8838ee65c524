// SPDX-License-Identifier: Apache-2.0
// Run by several workers: see tests/training/workers_test.cpp. What a model that is divided among
// them says is what the whole one says.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "ballast/inference/audit.h"
#include "ballast/inference/evaluate.h"
#include "ballast/inference/generate.h"
#include "ballast/loading/whole_tensors.h"
#include "tests/comm/divisions.h"
#include "tests/inference/tokens_of_domains.h"
#include "tests/loading/sparse_model.h"

namespace ballast::inference {
namespace {

using at::Tensor;
using test::SparseModel;

// Experts for up to eight workers, heads for up to four.
config::Config config_of(const std::string& router) {
  config::Config config = test::sparse_config();
  config.model.heads = 4;
  config.experts.count = 8;
  config.experts.router = router;
  if (router == "dense") config.experts = {};
  return config;
}

constexpr const char* kRouters[] = {"dense", "base", "switch", "sparsely_gated"};

// This worker's part of a whole model.
struct PartOfModel {
  PartOfModel(const SparseModel& whole, const comm::WorkerGrid& grid)
      : model(whole.config, table, grid), place(whole.place) {
    const at::NoGradGuard no_grad;
    table.allocate({.working = at::kDouble, .master = at::kDouble, .trainable = false});
    for (const parameters::Segment& segment : table.segments()) {
      const Tensor all = whole.table.view(whole.table.master(), whole.table.segment(segment.name));
      table.view(table.working(), segment).copy_(segment.slice ? segment.slice->take(all) : all);
    }
    for (size_t i = 0; i < model.expert_layers().size(); ++i) {
      const experts::PriceAverage* const prices = whole.model.expert_layers()[i]->router().prices();
      if (prices != nullptr) model.expert_layers()[i]->router().prices()->set(prices->value());
    }
  }

  parameters::ParameterTable table;
  model::LanguageModel model;
  model::ComputePlace place;
};

template <typename Check>
void for_each_division(Check check) {
  for (const char* router : kRouters) {
    const SparseModel whole(config_of(router));
    for (const comm::WorkerGrid& grid : test::divisions()) {
      SCOPED_TRACE(std::string(router) + ", " + test::name_of(grid));
      const PartOfModel part(whole, grid);
      check(whole, part);
    }
  }
}

TEST(DividedModel, HasTheLogitsOfTheWholeOne) {
  // A number of tokens that nothing divides, and fewer than there are workers.
  const Tensor tokens = (at::arange(21) * 5).remainder(13).view({3, 7});
  for_each_division([&](const SparseModel& whole, const PartOfModel& part) {
    const at::NoGradGuard no_grad;
    for (const auto& some : {tokens, tokens.narrow(0, 0, 1).narrow(1, 0, 1).contiguous()}) {
      const Tensor expected = whole.model.logits(whole.model.forward(some, {}));
      const Tensor got = part.model.logits(part.model.forward(some, {}));
      ASSERT_EQ(got.sizes(), expected.sizes());
      EXPECT_LE((got - expected).abs().max().item<double>(), 1e-10);
    }
  });
}

TEST(DividedModel, EvaluatesAsTheWholeOneAndCountsItsExpertsOnce) {
  const batches::EvalWindows windows(test::in_three_domains(*test::random_tokens(700, 13)), 16, 11);
  for_each_division([&](const SparseModel& whole, const PartOfModel& part) {
    const EvaluationOptions options{.batch = 3, .previous_tokens = true};
    const Evaluation expected = evaluate(whole.model, whole.place, windows, options);
    const Evaluation got = evaluate(part.model, part.place, windows, options);
    EXPECT_NEAR(got.loss, expected.loss, 1e-10);
    EXPECT_EQ(got.tokens, expected.tokens);
    ASSERT_EQ(got.experts.size(), expected.experts.size());
    for (size_t i = 0; i < got.experts.size(); ++i) {
      EXPECT_EQ(got.experts[i].loads(), expected.experts[i].loads());
      EXPECT_DOUBLE_EQ(got.experts[i].token_information(), expected.experts[i].token_information());
      EXPECT_TRUE(std::ranges::equal(got.previous_tokens[i].counts(),
                                     expected.previous_tokens[i].counts()));
    }
    ASSERT_EQ(got.domains.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(got.domains[i].tokens, expected.domains[i].tokens);
      EXPECT_NEAR(got.domains[i].loss, expected.domains[i].loss, 1e-10);
    }
    ASSERT_EQ(got.second_experts.size(), expected.second_experts.size());
    for (size_t i = 0; i < got.second_experts.size(); ++i)
      EXPECT_EQ(got.second_experts[i].loads(), expected.second_experts[i].loads());
  });
}

// Each shard balances its own tokens: what that gives is not compared, but nothing is lost.
TEST(DividedModel, CountsEachTokenOnceWhereItBalancesThem) {
  const batches::EvalWindows windows(test::random_tokens(700, 13), 16, 16);
  const SparseModel whole(config_of("base"));
  for (const comm::WorkerGrid& grid : test::divisions()) {
    const PartOfModel part(whole, grid);
    const Evaluation got = evaluate(part.model, part.place, windows,
                                    {.batch = 3, .routing = experts::RoutingMode::kBalanced});
    EXPECT_EQ(got.tokens, windows.predictions());
    for (const ExpertUse& use : got.experts)
      EXPECT_EQ(use.total(), static_cast<int64_t>(windows.predictions()));
  }
}

TEST(DividedModel, WritesWhatTheWholeOneWrites) {
  const std::vector<std::vector<tokenizer::TokenId>> prompts = {{1, 2, 3}, {}, {4}};
  for_each_division([&](const SparseModel& whole, const PartOfModel& part) {
    const GenerationOptions options{.max_tokens = 30};  // beyond the context
    EXPECT_EQ(generate(part.model, part.place, 0, prompts, options),
              generate(whole.model, whole.place, 0, prompts, options));
    EXPECT_EQ(generate(part.model, part.place, 0, {{5}}, options),
              generate(whole.model, whole.place, 0, {{5}}, options));
  });
}

TEST(DividedModel, IsAuditedAsTheWholeOne) {
  const batches::EvalWindows windows(test::random_tokens(300, 13), 16, 16);
  for_each_division([&](const SparseModel& whole, const PartOfModel& part) {
    const AuditOptions options{.batch = 3, .max_windows = 10};
    const AuditReport expected = audit_causality(whole.model, whole.place, windows, options);
    const AuditReport got = audit_causality(part.model, part.place, windows, options);
    EXPECT_TRUE(got.passed()) << got.first_leak;
    EXPECT_EQ(got.windows, expected.windows);
    EXPECT_EQ(got.cuts, expected.cuts);
    EXPECT_EQ(got.counts.routes, expected.counts.routes);
    EXPECT_EQ(got.counts.logits, expected.counts.logits);
  });
}

TEST(DividedModel, IsCaughtLookingAhead) {
  const batches::EvalWindows windows(test::random_tokens(300, 13), 16, 16);
  const SparseModel whole(config_of("base"));
  for (const comm::WorkerGrid& grid : test::divisions()) {
    const PartOfModel part(whole, grid);
    const AuditReport got = audit_causality(
        part.model, part.place, windows,
        {.routing = experts::RoutingMode::kBalanced, .batch = 3, .max_windows = 10});
    EXPECT_GT(got.counts.changed_routes, 0);
    EXPECT_NE(got.first_leak, "");
  }
}

// Tensors of more elements than MPI can count.
TEST(WholeTensors, AreExchangedInRowsThatMpiCanCount) {
  constexpr int64_t kMostRows = std::numeric_limits<int>::max();
  for (const comm::WorkerGrid& grid : test::divisions()) {
    const comm::Communicator& shards = grid.shards();
    for (parameters::Slice slice :
         {parameters::Slice{.full_shape = {262'144, 8192}},
          parameters::Slice{.full_shape = {262'143, 8192}},
          parameters::Slice{.full_shape = {3 * 16'384, 65'536}, .blocks = {16'384, 16'384, 16'384}},
          parameters::Slice{.full_shape = {65'536, 65'536}, .dim = 1}}) {
      slice.shard = shards.rank();
      slice.shards = shards.size();
      const auto way = loading::WholeTensors::way_to(0, shards, slice);
      const auto elements = [&](const comm::RowsOfWorker& rows) {
        const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
        EXPECT_LE(all, kMostRows);
        return all * way.row;
      };
      const std::vector<int64_t> part = slice.shape();
      EXPECT_EQ(elements(way.send), part[0] * part[1]);
      EXPECT_EQ(way.send[0] * way.row, part[0] * part[1]) << "all to the writer";
      EXPECT_EQ(elements(way.receive),
                shards.rank() == 0 ? slice.full_shape[0] * slice.full_shape[1] : 0);
    }
  }
}

}  // namespace
}  // namespace ballast::inference
