// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/validation_record.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ballast/config/system_words.h"
#include "ballast/system/file.h"
#include "ballast/tokenizer/token_text.h"
#include "tests/inference/tokens_of_domains.h"
#include "tests/loading/sparse_model.h"
#include "tests/support/temporary_folder.h"

namespace ballast::inference {
namespace {

using experts::RoutingMode;
using nlohmann::json;
using test::SparseModel;

const std::vector<RoutingMode> kAll = {RoutingMode::kGreedy, RoutingMode::kPriced,
                                       RoutingMode::kBalanced};

// A model of some router, evaluated, written down and read again.
struct Written {
  explicit Written(const std::string& router, const std::vector<RoutingMode>& modes,
                   int64_t tokens = 400)
      : model(config_of(router)),
        source(test::in_three_domains(*test::random_tokens(tokens, 13))),
        windows(source, 16, 16) {
    for (const RoutingMode mode : modes) {
      results.push_back(
          evaluate(model.model, model.place, windows,
                   {.routing = mode, .previous_tokens = mode != RoutingMode::kBalanced}));
    }
    const auto tokenizer = tokenizer::load_tokenizer("bytes");
    EvaluatedModel record{.config = model.config,
                          .step = 7,
                          .windows = windows,
                          .tokenizer = tokenizer.get(),
                          .routings = {}};
    for (size_t i = 0; i < modes.size(); ++i) record.routings.push_back({modes[i], results[i]});
    const test::TemporaryFolder folder;
    write_text_atomically(folder / "validation.json", "what was there before");
    record::write_validation(folder / "validation.json", last_validation(record));
    read = json::parse(read_text(folder / "validation.json"));
  }

  static config::Config config_of(const std::string& router) {
    config::Config config = test::sparse_config();
    config.experts.router = router;
    if (router == "dense") config.experts = {};
    return config;
  }

  SparseModel model;
  std::shared_ptr<tokens::TokenSource> source;
  batches::EvalWindows windows;
  std::vector<Evaluation> results;
  json read;
};

void expect_tokens(const json& list, const std::vector<ExpertUse::TopToken>& expected) {
  ASSERT_EQ(list.size(), expected.size());
  const auto tokenizer = tokenizer::load_tokenizer("bytes");
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(list[i].at("id"), expected[i].token);
    EXPECT_EQ(list[i].at("text"),
              tokenizer::token_text(tokenizer.get(), expected[i].token).value());
    EXPECT_EQ(list[i].at("count"), expected[i].count);
    EXPECT_EQ(list[i].at("lift"), expected[i].lift);
  }
}

TEST(ValidationRecord, HoldsWhatEachWayOfRoutingGave) {
  const Written w("base", kAll);
  EXPECT_EQ(w.read.at("format"), "ballast-validation");
  EXPECT_EQ(w.read.at("version"), 1);
  EXPECT_EQ(w.read.at("step"), 7);
  EXPECT_EQ(w.read.at("tokens"), 399);
  EXPECT_EQ(w.read.at("whole_split"), true);
  EXPECT_EQ(w.read.at("system"), config::system_in_words(w.model.config));
  EXPECT_TRUE(w.read.at("floor_per_token").is_null());
  ASSERT_EQ(w.read.at("routings").size(), 3U);
  for (size_t r = 0; r < 3; ++r) {
    const json& routing = w.read["routings"][r];
    EXPECT_EQ(routing.at("routing"), experts::routing_name(kAll[r]));
    EXPECT_EQ(routing.at("loss"), w.results[r].loss);
    EXPECT_EQ(routing.at("perplexity"), w.results[r].perplexity);
    ASSERT_EQ(routing.at("layers").size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      const json& layer = routing["layers"][i];
      EXPECT_EQ(layer.at("layer"), w.model.model.expert_layers()[i]->place());
      EXPECT_EQ(layer.at("name"), config::layers_in_words(w.model.config)[i]);
      EXPECT_EQ(layer.at("loads"), w.results[r].experts[i].loads());
    }
  }
}

TEST(ValidationRecord, TellsWhatExpertsGot) {
  const Written w("base", kAll);
  for (size_t r = 0; r < 2; ++r) {
    for (size_t i = 0; i < 2; ++i) {
      const json& layer = w.read["routings"][r]["layers"][i];
      const ExpertUse &use = w.results[r].experts[i], &previous = w.results[r].previous_tokens[i];
      EXPECT_TRUE(layer.at("domain_bits").is_null()) << "less than 2,000 tokens of each domain";
      EXPECT_EQ(layer.at("token_bits"), use.token_information());
      EXPECT_EQ(layer.at("previous_bits"), previous.token_information());
      for (int64_t expert = 0; expert < 4; ++expert) {
        const auto at = static_cast<size_t>(expert);
        EXPECT_EQ(layer.at("domain_loads")[at], use.domain_loads(expert));
        EXPECT_EQ(layer.at("experts")[at].at("expert"), expert);
        expect_tokens(layer["experts"][at].at("tokens"), use.top_tokens(expert, 10));
        expect_tokens(layer["experts"][at].at("previous"), previous.top_tokens(expert, 10));
      }
    }
  }
}

TEST(ValidationRecord, HasTheLossOfEachDomain) {
  constexpr int64_t kTokens = 6200;  // 2,000 of each, and some
  const Written w("base", {RoutingMode::kGreedy}, kTokens);
  const json& domains = w.read["routings"][0].at("domains");
  ASSERT_EQ(domains.size(), 3U);
  EXPECT_EQ(w.read["routings"][0]["layers"][0].at("domain_bits"),
            w.results[0].experts[0].domain_information());
  double weighted = 0, tokens = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(domains[i].at("name"), w.source->domains()[i]);
    EXPECT_EQ(domains[i].at("loss"), w.results[0].domains[i].loss);
    tokens += domains[i].at("tokens").get<double>();
    weighted += domains[i].at("tokens").get<double>() * domains[i].at("loss").get<double>();
  }
  EXPECT_EQ(tokens, kTokens - 1);
  EXPECT_NEAR(weighted / tokens, w.read["routings"][0].at("loss").get<double>(), 1e-12);
}

// Its loss is not a language model's, so that nothing is told that invites to compare it.
TEST(ValidationRecord, KeepsLittleOfBalancedRouting) {
  const Written w("base", kAll);
  const json& balanced = w.read["routings"][2];
  for (const char* key : {"domains", "bits_per_byte"}) EXPECT_FALSE(balanced.contains(key)) << key;
  for (const json& layer : balanced.at("layers")) {
    EXPECT_EQ(layer.size(), 4U) << layer;
    int64_t sum = 0;
    const auto experts = static_cast<double>(layer.at("loads").size());
    for (const json& load : layer.at("loads")) {
      // Three batches of 128 tokens come out even; the last has 15.
      EXPECT_NEAR(load.get<double>(), 399 / experts, 1) << layer;
      sum += load.get<int64_t>();
    }
    EXPECT_EQ(sum, 399);
  }
}

TEST(ValidationRecord, OfADenseModelHasNoRoutingAndNoLayers) {
  const Written w("dense", {RoutingMode::kGreedy});
  ASSERT_EQ(w.read.at("routings").size(), 1U);
  EXPECT_TRUE(w.read["routings"][0].at("routing").is_null());
  EXPECT_EQ(w.read["routings"][0].at("layers"), json::array());
  EXPECT_EQ(w.read["routings"][0].at("domains").size(), 3U);
  for (const json& domain : w.read["routings"][0].at("domains"))
    EXPECT_TRUE(domain.at("loss").is_null()) << "of less than 2,000 tokens nothing is said";
}

TEST(ValidationRecord, OfSparselyGatedLayersHasSecondLoads) {
  const Written moe("sparsely_gated", {RoutingMode::kGreedy}),
      one("switch", {RoutingMode::kGreedy});
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(moe.read["routings"][0]["layers"][i].at("second_loads"),
              moe.results[0].second_experts[i].loads());
    EXPECT_FALSE(one.read["routings"][0]["layers"][i].contains("second_loads"));
  }
}

TEST(ValidationRecord, WithoutATokenizerTokensAreNumbers) {
  const SparseModel m;
  const batches::EvalWindows windows(test::random_tokens(100, 13), 16, 16);
  const Evaluation result =
      evaluate(m.model, m.place, windows, {.max_windows = 2, .previous_tokens = true});
  const test::TemporaryFolder folder;
  record::write_validation(
      folder / "out.json",
      last_validation(
          {.config = m.config, .windows = windows, .routings = {{RoutingMode::kGreedy, result}}}));
  const json read = json::parse(read_text(folder / "out.json"));
  EXPECT_EQ(read.at("whole_split"), false);
  const json& layer = read["routings"][0]["layers"][0];
  EXPECT_EQ(layer.at("domain_loads"), json::array());
  const json& top = layer["experts"][0]["tokens"][0];
  EXPECT_EQ(top.at("text"), fmt::format("#{}", top.at("id").get<int>()));
}

}  // namespace
}  // namespace ballast::inference
