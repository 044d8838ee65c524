// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/studio/pages/balance.h"
#include "ballast/studio/pages/specialisation.h"
#include "ballast/studio/pages/words.h"

namespace ballast::pages {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::IsEmpty;

RunRecord run_with(const std::vector<record::ValidationPoint>& points) {
  RunRecord run;
  for (const record::ValidationPoint& point : points) {
    run.validations.push_back(point);
    run.steps.push_back({.step = point.step, .tokens = point.tokens, .seconds = point.seconds});
  }
  return run;
}

System system_of(const std::string& title, std::vector<RunRecord> runs) {
  System system;
  system.id = system.title = title;
  system.kind = title;
  system.runs = std::move(runs);
  return system;
}

TEST(EqualTokens, AreTheMostThatAllSystemsOfAPanelReached) {
  Comparison comparison;
  comparison.systems = {
      system_of("fast", {run_with({{1, 100, 1, 4.0}, {2, 900, 2, 2.0}})}),
      system_of("slow", {run_with({{1, 100, 1, 4.0}, {2, 400, 2, 3.0}})}),
      system_of("not trained", {}),
  };
  EXPECT_EQ(tokens_of_all(comparison, {"", {0, 1, 2}}), 400);
  EXPECT_EQ(tokens_of_all(comparison, {"", {0, 2}}), 900);
  EXPECT_TRUE(std::isnan(tokens_of_all(comparison, {"", {2}})));
  EXPECT_DOUBLE_EQ(perplexity_at(comparison.systems[1], 400), std::exp(3.0));
}

TEST(Seeds, AreAveragedWithTheDeviationOfASample) {
  const Spread spread = spread_of({1, 2, record::kUnknown, 3});
  EXPECT_EQ(spread.count, 3);
  EXPECT_DOUBLE_EQ(spread.mean, 2);
  EXPECT_DOUBLE_EQ(spread.deviation, 1);
  EXPECT_TRUE(std::isnan(spread_of({5}).deviation));
  EXPECT_TRUE(std::isnan(spread_of({}).mean));
}

TEST(Seeds, HaveOneLineWithABandWhereAllWereValidated) {
  const System system =
      system_of("a", {run_with({{1, 100, 1, std::log(10)}, {2, 200, 2, std::log(4)}}),
                      run_with({{1, 100, 3, std::log(20)}})});
  const figures::Series series = perplexity_series(system, Against::kSeconds, 2);
  ASSERT_EQ(series.points.size(), 1);
  EXPECT_DOUBLE_EQ(series.points[0].x, 1);
  EXPECT_DOUBLE_EQ(series.points[0].y, 15);
  EXPECT_DOUBLE_EQ(series.band[0].low, 10);
  EXPECT_DOUBLE_EQ(series.band[0].high, 20);
}

TEST(Speed, LeavesOutTheFirstStepOfEachStart) {
  RunRecord run;
  run.starts = {{.step = 0}, {.step = 2}};
  for (int64_t step = 1; step <= 5; ++step) run.steps.push_back({.step = step});
  std::vector<int64_t> settled;
  for (const record::StepRecord* step : settled_steps(run)) settled.push_back(step->step);
  EXPECT_THAT(settled, ElementsAre(2, 4, 5));
}

TEST(Median, IsTheMiddleOfWhatIsKnown) {
  EXPECT_EQ(median_of({3, 1, record::kUnknown, 2}), 2);
  EXPECT_EQ(median_of({4, 1}), 2.5);
  EXPECT_TRUE(std::isnan(median_of({})));
}

TEST(Reference, IsTheFirstDenseSystemThatWasTrained) {
  Comparison comparison;
  comparison.systems = {system_of("base", {run_with({{1, 100, 1, 4.0}})}), system_of("dense", {}),
                        system_of("dense", {run_with({{1, 100, 1, 4.0}})})};
  EXPECT_EQ(reference_of(comparison, {"", {0, 1, 2}}), &comparison.systems[2]);
  EXPECT_EQ(reference_of(comparison, {"", {0, 1}}), &comparison.systems[0]);
  EXPECT_EQ(reference_of(comparison, {"", {1}}), nullptr);
}

TEST(Reference, IsTheDenseSystemOfEqualFlopsWhereThereIsOne) {
  Comparison comparison;
  comparison.systems = {system_of("base", {run_with({{1, 100, 1, 4.0}})}),
                        system_of("dense", {run_with({{1, 100, 1, 4.0}})}),
                        system_of("dense", {run_with({{1, 100, 1, 4.0}})})};
  comparison.systems[2].title = "Dense, equal FLOPs";
  EXPECT_EQ(reference_of(comparison, {"", {0, 1, 2}}), &comparison.systems[2]);
  EXPECT_EQ(reference_of(comparison, {"", {0, 1}}), &comparison.systems[1]);
}

RunRecord validated_run(double perplexity, int64_t steps, int64_t planned) {
  RunRecord run = run_with({{steps, 100, 1, std::log(perplexity)}});
  run.validation.emplace().routings.emplace_back().loss = std::log(perplexity);
  run.config.emplace().training.steps = planned;
  return run;
}

RunRecord routed_run(double greedy, double priced) {
  RunRecord run = validated_run(greedy, 10, 10);
  run.validation->routings.front().routing = "greedy";
  record::RoutingUse& second = run.validation->routings.emplace_back();
  second.routing = "priced";
  second.loss = std::log(priced);
  return run;
}

TEST(BestRouting, IsThatOfTheLowerMeanOverSeeds) {
  const System priced = system_of("base", {routed_run(20, 18), routed_run(21, 22)});
  EXPECT_EQ(result_of(priced).routing, "priced");
  EXPECT_NEAR(final_perplexity(priced), 20, 1e-9);
  EXPECT_EQ(title_with_routing(priced), "base with priced routing");
  const System greedy = system_of("base", {routed_run(20, 21)});
  EXPECT_EQ(result_of(greedy).routing, "greedy");
  EXPECT_NEAR(final_perplexity(greedy), 20, 1e-9);
}

TEST(BestRouting, IsNamedOnlyWhereThereIsAChoice) {
  const System dense = system_of("dense", {validated_run(20, 10, 10)});
  EXPECT_EQ(title_with_routing(dense), "dense");
  EXPECT_EQ(routing_on_the_way(dense), "");
  System base = system_of("base", {routed_run(20, 18)});
  EXPECT_EQ(routing_on_the_way(base), "priced");
  base.runs.front().config->experts.test_routing = config::TestRouting::kGreedy;
  EXPECT_EQ(routing_on_the_way(base), "greedy");
}

TEST(BestRouting, IsNotMixedUpWithOneThatWasNotMeasured) {
  RunRecord run = validated_run(20, 10, 10);
  run.validation->routings.front().routing = "priced";
  const SystemResult result = result_of(system_of("base", {run}));
  EXPECT_EQ(result.routing, "priced");
  EXPECT_EQ(result.greedy.count, 0);
  EXPECT_NEAR(result.best().mean, 20, 1e-9);
}

TEST(HalfTrained, SystemsAreNoneOfTheLowest) {
  Comparison comparison;
  comparison.systems = {system_of("base", {validated_run(20, 7, 10)}),
                        system_of("dense", {validated_run(30, 10, 10)}),
                        system_of("switch", {validated_run(40, 10, 10)})};
  const auto any = [](const System&) { return true; };
  EXPECT_EQ(lowest_of(comparison, {"", {0, 1, 2}}, any), &comparison.systems[1]);
  EXPECT_EQ(lowest_of(comparison, {"", {0, 1, 2}},
                      [](const System& system) { return system.kind != "dense"; }),
            &comparison.systems[2]);
  EXPECT_EQ(lowest_of(comparison, {"", {0}}, any), nullptr);
  EXPECT_EQ(half_trained_run(comparison.systems[0]), &comparison.systems[0].runs[0]);
  EXPECT_EQ(half_trained_run(comparison.systems[1]), nullptr);
}

TEST(HalfTrained, SeedsDoNotCountBesideWholeOnes) {
  const System system =
      system_of("base", {validated_run(20, 10, 10), validated_run(90, 3, 10), RunRecord()});
  EXPECT_NEAR(result_of(system).greedy.mean, 20, 1e-12);
  EXPECT_EQ(result_of(system).greedy.count, 1);
  EXPECT_EQ(half_trained_run(system), nullptr);
}

TEST(Balance, SharesAreInFairSharesAndFalling) {
  EXPECT_THAT(sorted_shares({1, 6, 1}),
              ElementsAre(DoubleEq(2.25), DoubleEq(0.375), DoubleEq(0.375)));
  EXPECT_THAT(sorted_shares({0, 0}), IsEmpty());
  EXPECT_THAT(sorted_shares({}), IsEmpty());
}

TEST(Balance, LayersAreSortedBeforeTheyAreAveraged) {
  record::RoutingUse routing;
  routing.layers.resize(2);
  routing.layers[0].loads = {1, 3};
  routing.layers[1].loads = {4, 0};
  EXPECT_THAT(balance_curve(routing, Choice::kFirst), ElementsAre(DoubleEq(1.75), DoubleEq(0.25)));
  EXPECT_THAT(balance_curve(routing, Choice::kSecond), IsEmpty());
}

TEST(Balance, ThePapersCurvesAreOf128ExpertsAndFall) {
  for (const PaperCurve& curve : paper_balance()) {
    ASSERT_EQ(curve.shares.size(), 128) << curve.name;
    double sum = 0;
    for (size_t i = 0; i < curve.shares.size(); ++i) {
      sum += curve.shares[i];
      if (i == 0) continue;
      EXPECT_LE(curve.shares[i], curve.shares[i - 1]) << curve.name << " " << i;
    }
    // Percents with two digits: 128 roundings of at most 0.005 % each, in fair shares.
    EXPECT_NEAR(sum / 128, 1, 0.005 * 1.28) << curve.name;
  }
}

TEST(Specialisation, IsTheMeanLiftInBitsOfTheMoreTellingList) {
  const record::ExpertTokens expert = {0, {{"a", 3, 4}, {"b", 1, 1}}, {{"c", 1, 2}}};
  EXPECT_DOUBLE_EQ(specialisation(expert), 1.5);
  EXPECT_EQ(specialisation({}), 0);
  EXPECT_EQ(specialisation({0, {{"a", 0, record::kUnknown}}, {}}), 0);
}

TEST(Specialisation, OrdersExperts) {
  record::LayerUse layer;
  layer.experts = {{0, {{"a", 1, 1}}, {}}, {1, {{"b", 1, 8}}, {}}, {2, {}, {{"c", 1, 2}}}};
  std::vector<int64_t> order;
  for (const record::ExpertTokens* expert : by_specialisation(layer))
    order.push_back(expert->expert);
  EXPECT_THAT(order, ElementsAre(1, 2, 0));
}

TEST(Specialisation, OfExpertsThatAreHardlyUsedComesLast) {
  record::LayerUse layer;
  layer.loads = {500, 16, 484, 17};  // a tenth of the fair share is 25.4
  layer.experts = {{0, {{"a", 1, 2}}, {}},
                   {1, {{"b", 1, 90}}, {}},
                   {2, {{"c", 1, 4}}, {}},
                   {3, {{"d", 1, 99}}, {}}};
  std::vector<int64_t> order;
  for (const record::ExpertTokens* expert : by_specialisation(layer))
    order.push_back(expert->expert);
  EXPECT_THAT(order, ElementsAre(2, 0, 3, 1));
}

TEST(Balance, ATenthOfTheFairShareIsUse) {
  record::LayerUse layer;
  EXPECT_TRUE(is_used(layer, 3));
  layer.loads = {19, 1, 0, 20};
  EXPECT_TRUE(is_used(layer, 1));
  EXPECT_FALSE(is_used(layer, 2));
  EXPECT_FALSE(is_used(layer, 4));
}

TEST(Balance, BitsOfLoadsAreTheirEntropy) {
  EXPECT_DOUBLE_EQ(load_bits({1, 1, 1, 1}), 2);
  EXPECT_DOUBLE_EQ(load_bits({2, 1, 1, 0}), 1.5);
  EXPECT_EQ(load_bits({5, 0}), 0);
  EXPECT_EQ(load_bits({}), 0);
}

TEST(Words, ShowNumbersAndWhereThereAreNone) {
  EXPECT_EQ(perplexity_text(23.456), "23.46");
  EXPECT_EQ(perplexity_text(142.34), "142.3");
  EXPECT_EQ(perplexity_text(record::kUnknown), "-");
  EXPECT_EQ(spread_text({23.4, 0.07, 3}), "23.40 ± 0.07");
  EXPECT_EQ(change_text(19, 20), "-5.0 %");
  EXPECT_EQ(change_text(19, record::kUnknown), "-");
  EXPECT_EQ(percent_text(0.034), "3.4 %");
  EXPECT_EQ(in_words({"a", "b", "c"}), "a, b and c");
  EXPECT_EQ(plural(1, "layer"), "1 layer");
  EXPECT_EQ(with_visible_spaces(" a b"), "\u2423a\u2423b");
}

}  // namespace
}  // namespace ballast::pages
