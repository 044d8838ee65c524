// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/inspection.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ballast/inference/expert_embeddings.h"
#include "ballast/inference/expert_sample.h"
#include "ballast/system/error.h"
#include "tests/inference/tokens_of_domains.h"
#include "tests/loading/sparse_model.h"

namespace ballast::inference {
namespace {

using experts::RoutingMode;
using tokenizer::TokenId;

constexpr int64_t kContext = 8;

// A model of bytes with opinions that differ.
std::unique_ptr<loading::LoadedModel> loaded_model(
    const std::function<void(config::ExpertsConfig&)>& change = [](config::ExpertsConfig&) {}) {
  config::Config config = test::sparse_config(kContext);
  config.model.vocabulary = 257;
  change(config.experts);
  auto loaded = std::make_unique<loading::LoadedModel>();
  loaded->config = config;
  loaded->tokenizer = tokenizer::load_tokenizer("bytes");
  loaded->model =
      std::make_unique<model::LanguageModel>(config, loaded->table, test::lone_worker());
  loaded->place = {at::kCPU, at::kDouble, at::kDouble};
  test::fill_with_opinions(config, loaded->table, *loaded->model, at::kDouble);
  return loaded;
}

std::vector<TokenId> some_text(size_t length) {
  std::vector<TokenId> tokens;
  RandomStream random(3, "inspection test");
  while (tokens.size() < length) tokens.push_back(static_cast<TokenId>(random.below(257)));
  return tokens;
}

// What a window shows of its last token alone, routed with all before it.
struct Plain {
  std::map<int64_t, experts::SeenRoute> routes;  // by layer
  at::Tensor logits;
};
Plain pass(const loading::LoadedModel& loaded, const std::vector<int64_t>& window,
           RoutingMode mode) {
  const at::NoGradGuard no_grad;
  Plain plain;
  experts::Routing routing{.mode = mode};
  routing.seen = [&](const experts::SeenRoute& route) { plain.routes.emplace(route.layer, route); };
  const at::Tensor hidden =
      loaded.model->forward(at::tensor(window, at::kLong).unsqueeze(0), routing);
  plain.logits = loaded.model->logits(hidden)[-1];
  return plain;
}

// The window that token `i` of end-of-text and the text is read in, up to it: the first context,
// then half a context of new tokens each.
std::vector<int64_t> window_until(const std::vector<int64_t>& ids, int64_t i) {
  constexpr int64_t kHalf = kContext / 2;
  const bool is_long = std::ssize(ids) > kContext;
  const int64_t begin = !is_long || i < kContext ? 0 : ((i - kContext) / kHalf + 1) * kHalf;
  return {ids.begin() + begin, ids.begin() + i + 1};
}

// The gate from the definition: affinities are scores times the embedding's length.
double plain_gate(const loading::LoadedModel& loaded, const experts::ExpertLayer& layer,
                  const at::Tensor& scores, const std::vector<int64_t>& chosen) {
  const config::ExpertsConfig& config = loaded.config.experts;
  at::Tensor affinities = scores.to(at::kDouble);
  if (config.scores == config::Scores::kCosine)
    affinities = affinities * expert_embeddings(loaded, layer).norm(2, 1);
  if (config.gate == config::Gate::kSigmoid)
    return affinities.sigmoid()[chosen.front()].item<double>();
  const at::Tensor all = affinities.softmax(0);
  double sum = 0;
  for (const int64_t expert : chosen) sum += all[expert].item<double>();
  const bool among_chosen = config.renormalise && chosen.size() > 1;
  return all[chosen.front()].item<double>() / (among_chosen ? sum : 1);
}

void expect_plain(const loading::LoadedModel& loaded, size_t length, RoutingMode mode) {
  const std::vector<TokenId> text = some_text(length);
  const Inspection found = inspect(loaded, text, mode);
  ASSERT_EQ(found.tokens, text);
  ASSERT_EQ(found.losses.size(), length);
  const auto& layers = loaded.model->expert_layers();
  ASSERT_EQ(found.layers.size(), layers.size());
  std::vector<int64_t> ids = {loaded.tokenizer->end_of_text()};
  ids.insert(ids.end(), text.begin(), text.end());
  for (size_t t = 0; t < length; ++t) {
    const auto place = static_cast<int64_t>(t) + 1;
    const Plain before = pass(loaded, window_until(ids, place - 1), mode);
    EXPECT_NEAR(found.losses[t], -at::log_softmax(before.logits, 0)[ids[t + 1]].item<double>(),
                1e-10);
    const Plain here = pass(loaded, window_until(ids, place), mode);
    for (size_t l = 0; l < layers.size(); ++l) {
      const InspectedLayer& layer = found.layers[l];
      const experts::SeenRoute& route = here.routes.at(layer.layer);
      EXPECT_EQ(layer.layer, layers[l]->place());
      const at::Tensor compared = route.scores[-1];
      at::Tensor scores = compared.to(at::kDouble);
      if (mode == RoutingMode::kPriced) scores = scores + layers[l]->router().prices()->value();
      const int64_t expert = route.expert_of_token[-1].item<int64_t>();
      ASSERT_EQ(layer.expert[t], expert);
      const auto order = std::get<1>(compared.sort(-1, true));
      std::vector<int64_t> chosen;
      for (int64_t k = 0; k < layers[l]->experts_of_token(); ++k)
        chosen.push_back(order[k].item<int64_t>());
      EXPECT_EQ(layer.second[t], order[1].item<int64_t>());
      EXPECT_EQ(layer.best[t], scores.argmax().item<int64_t>());
      // Scores are told in fp32.
      EXPECT_NEAR(layer.score[t], scores[expert].item<double>(), 1e-5);
      EXPECT_NEAR(layer.second_score[t], scores[layer.second[t]].item<double>(), 1e-5);
      EXPECT_NEAR(layer.best_score[t], scores.max().item<double>(), 1e-5);
      EXPECT_NEAR(layer.gate[t], plain_gate(loaded, *layers[l], scores, chosen), 1e-5);
    }
  }
}

TEST(Inspection, EqualsOneTokenAtATimeInAndBeyondAContext) {
  const auto loaded = loaded_model();
  for (const size_t length : {1U, 7U, 8U, 21U})
    for (const RoutingMode mode : {RoutingMode::kGreedy, RoutingMode::kPriced})
      expect_plain(*loaded, length, mode);
}

TEST(Inspection, TellsTheGatesOfAllFrames) {
  for (const config::Scores scores : {config::Scores::kDot, config::Scores::kCosine}) {
    for (const config::Gate gate : {config::Gate::kSoftmax, config::Gate::kSigmoid}) {
      for (const int64_t per_token : {1, 2, 3}) {
        const auto loaded = loaded_model([&](config::ExpertsConfig& experts) {
          experts.scores = scores;
          experts.gate = gate;
          experts.per_token = per_token;
        });
        expect_plain(*loaded, 9, RoutingMode::kPriced);
      }
    }
  }
  for (const char* const router : {"switch", "sparsely_gated"})
    expect_plain(*loaded_model([&](config::ExpertsConfig& experts) { experts.router = router; }), 9,
                 RoutingMode::kGreedy);
}

TEST(Inspection, BalancesTheTokensOfTheTextAndNothingElse) {
  const auto loaded = loaded_model();
  for (const size_t length : {3U, 7U, 22U}) {
    const Inspection found = inspect(*loaded, some_text(length), RoutingMode::kBalanced);
    for (const InspectedLayer& layer : found.layers) {
      std::vector<size_t> loads(4);
      for (size_t t = 0; t < length; ++t) {
        ++loads.at(static_cast<size_t>(layer.expert[t]));
        EXPECT_GE(layer.best_score[t], layer.score[t]);
        EXPECT_EQ(layer.second[t] == layer.best[t], layer.expert[t] != layer.best[t]);
      }
      const size_t share = length / 4;
      EXPECT_THAT(loads, testing::Each(testing::AnyOf(share, share + 1))) << length;
    }
  }
}

TEST(Inspection, TheOnlyExpertHasNoSecond) {
  const auto loaded = loaded_model([](config::ExpertsConfig& experts) { experts.count = 1; });
  const Inspection found = inspect(*loaded, some_text(3), RoutingMode::kGreedy);
  EXPECT_THAT(found.layers.front().second, testing::Each(-1));
  EXPECT_TRUE(std::isnan(found.layers.front().second_score.front()));
}

TEST(Inspection, ADenseModelHasLossesAlone) {
  const auto loaded = loaded_model([](config::ExpertsConfig& experts) { experts.layers = 0; });
  const Inspection found = inspect(*loaded, some_text(9), RoutingMode::kGreedy);
  EXPECT_EQ(found.losses.size(), 9U);
  EXPECT_TRUE(found.layers.empty());
}

TEST(Inspection, RefusesTextsThatAreEmptyTooLongOrUnreadable) {
  const auto loaded = loaded_model();
  EXPECT_EQ(tokens_to_inspect(*loaded, "ab").size(), 2U);
  EXPECT_EQ(tokens_to_inspect(*loaded, std::string(4096, 'a')).size(), 4096U);
  EXPECT_THROW(tokens_to_inspect(*loaded, std::string(4097, 'a')), UserError);
  EXPECT_THROW(tokens_to_inspect(*loaded, std::string(1 << 20, 'a')), UserError);
  EXPECT_THROW(tokens_to_inspect(*loaded, ""), UserError);
  loaded->tokenizer = nullptr;
  EXPECT_THROW(tokens_to_inspect(*loaded, "ab"), UserError);
}

TEST(ExpertEmbeddings, TheNearestAreThoseOfTheSmallestAngle) {
  const at::Tensor embeddings = at::tensor({1., 0., 2., 2., 0., 3., -1., 0., 0., 0.}).view({5, 2});
  const auto near = nearest_experts(embeddings, 0, 3);
  ASSERT_EQ(near.size(), 3U);
  EXPECT_EQ(near[0].expert, 1);
  EXPECT_NEAR(near[0].cosine, std::sqrt(0.5), 1e-12);
  EXPECT_EQ(near[1].expert, 2);
  EXPECT_EQ(near[2].expert, 4) << "of no length: near to none, far from none";
  EXPECT_EQ(nearest_experts(embeddings, 0, 9).size(), 4U);
}

// Counted again from the routes of each window alone.
TEST(ExpertSample, CountsAndShowsWhatAnExpertGot) {
  const auto loaded = loaded_model();
  const auto source = test::in_three_domains(*test::random_tokens(97, 13));
  const auto windows = std::make_shared<batches::EvalWindows>(source, kContext, kContext);
  ExpertSample sample(windows, 5);
  EXPECT_EQ(sample.wanted(), 5U);
  while (!sample.is_whole()) sample.read_next(*loaded, RoutingMode::kGreedy);
  EXPECT_THROW(sample.read_next(*loaded, RoutingMode::kGreedy), std::invalid_argument);
  EXPECT_EQ(sample.tokens(), 40U);
  for (size_t layer = 0; layer < 2; ++layer) {
    int64_t sum = 0;
    for (int64_t expert = 0; expert < 4; ++expert) {
      const ExpertUse use = sample.use_of(layer, expert);
      EXPECT_EQ(use.total(), 40);
      sum += use.loads()[0];
      const auto contexts = sample.contexts_of(layer, expert, 3, 2);
      EXPECT_EQ(contexts.empty(), use.loads()[0] == 0);
      EXPECT_LE(contexts.size(), 3U);
      for (const TokenInContext& one : contexts) {
        EXPECT_LE(one.before.size(), 2U);
        EXPECT_FALSE(one.domain.empty());
        const auto top = use.top_tokens(0, 13);
        EXPECT_TRUE(std::ranges::count(top, one.token, &ExpertUse::TopToken::token));
      }
    }
    EXPECT_EQ(sum, 40);
  }
}

TEST(ExpertSample, IsSpreadOverTheSourceAndLeavesOutWhatFillsItsEnd) {
  const auto loaded = loaded_model();
  std::vector<int64_t> ids(10 * kContext, 3);
  std::fill(ids.begin() + 5 * kContext, ids.end(), 4);
  const auto windows = std::make_shared<batches::EvalWindows>(
      tokens::tokens_in_memory(ids, {.name = "test", .format = "memory"}), kContext, kContext);
  ExpertSample some(windows, 2), all(windows, 100);
  while (!some.is_whole()) some.read_next(*loaded, RoutingMode::kGreedy);
  while (!all.is_whole()) all.read_next(*loaded, RoutingMode::kGreedy);
  std::map<int64_t, int64_t> seen;
  for (int64_t expert = 0; expert < 4; ++expert)
    for (const auto& top : some.use_of(0, expert).top_tokens(0, 9)) seen[top.token] += top.count;
  EXPECT_GE(seen[3], kContext);
  EXPECT_GE(seen[4], kContext - 1);
  EXPECT_EQ(all.tokens(), ids.size() - 1);
}

}  // namespace
}  // namespace ballast::inference
