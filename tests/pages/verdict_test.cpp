// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/studio/pages/words.h"
#include "tests/pages/run_folder.h"
#include "tests/support/temporary_folder.h"

namespace ballast::pages {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Trained {
  double perplexity = 20, tokens = 1000, seconds = 10, validated = 60000;
  int64_t vocabulary = 300;
};

RunRecord run_of(const Trained& trained) {
  RunRecord run;
  run.config.emplace().training.steps = 10;
  run.config->model.vocabulary = trained.vocabulary;
  run.steps.push_back({.step = 10, .tokens = trained.tokens, .seconds = trained.seconds});
  record::LastValidation& validation = run.validation.emplace();
  validation.tokens = trained.validated;
  validation.whole_split = true;
  validation.routings.emplace_back().loss = std::log(trained.perplexity);
  return run;
}

// Two systems, dense and switch, with these runs.
Comparison comparison_of(const std::vector<Trained>& dense, const std::vector<Trained>& gates) {
  Comparison comparison;
  for (const auto& [kind, runs] : {std::pair("dense", dense), std::pair("switch", gates)}) {
    System system;
    system.id = system.title = system.name = system.kind = kind;
    system.experts = kind == std::string("dense") ? 0 : 8;
    for (const Trained& trained : runs) system.runs.push_back(run_of(trained));
    comparison.systems.push_back(std::move(system));
  }
  comparison.panels = {{"", {0, 1}}};
  return comparison;
}

std::string verdict_of(const std::vector<Trained>& dense, const std::vector<Trained>& gates) {
  const Comparison comparison = comparison_of(dense, gates);
  return verdict(comparison, comparison.panels.front());
}

TEST(Verdict, NamesTheBestByHowMuchAndWhatIsEqual) {
  EXPECT_EQ(verdict_of({{.perplexity = 20, .seconds = 20}}, {{.perplexity = 18, .seconds = 30}}),
            "switch has the lowest perplexity, 18.00, 10.0 % below dense (20.00), after 1.00k "
            "tokens each; their training took 20.0s to 30.0s. One seed each: how much of it is "
            "chance is not known.");
  EXPECT_THAT(verdict_of({{.tokens = 900}}, {{.perplexity = 22, .tokens = 700}}),
              HasSubstr("dense has the lowest perplexity, 20.00, 9.1 % below switch (22.00), in "
                        "equal training time (10.0s)."));
}

TEST(Verdict, OfRunsOfDifferentLengthNamesNobody) {
  const Comparison comparison =
      comparison_of({{.tokens = 1000, .seconds = 10}}, {{.tokens = 2000, .seconds = 20}});
  EXPECT_EQ(verdict(comparison, comparison.panels.front()),
            "No winner can be named: they were trained for different lengths, on 1.00k to 2.00k "
            "tokens in 10.0s to 20.0s.");
}

TEST(Verdict, OfAnExperimentIsAtEqualTimeAsItWasPlanned) {
  Comparison comparison =
      comparison_of({{.tokens = 1000, .seconds = 10}}, {{.tokens = 2000, .seconds = 11}});
  comparison.panels.front().seconds = 12;
  EXPECT_THAT(verdict(comparison, comparison.panels.front()),
              HasSubstr("in equal training time (12.0s)"));
}

TEST(Verdict, OfRunsThatWereMeasuredOnDifferentTextNamesNobody) {
  EXPECT_EQ(verdict_of({{}}, {{.validated = 4000}}),
            "No winner can be named: dense was validated on the whole validation split, 60.0k "
            "tokens, switch on the whole validation split, 4.00k tokens.");
  EXPECT_THAT(verdict_of({{}}, {{.vocabulary = 400}}),
              HasSubstr("dense has a vocabulary of 300 tokens, switch one of 400"));
  Comparison comparison = comparison_of({{}}, {{}});
  comparison.systems[1].runs[0].config->data.builtin_seed = 7;
  EXPECT_THAT(why_not_comparable(comparison, comparison.panels.front()),
              HasSubstr("on data builtin (20000000 bytes, seed 1), switch on builtin (20000000 "
                        "bytes, seed 7)"));
}

TEST(Verdict, SaysWhetherSeedsExplainTheDifference) {
  const std::vector<Trained> dense = {{.perplexity = 20.0}, {.perplexity = 20.2}};
  EXPECT_THAT(verdict_of(dense, {{.perplexity = 19.9}, {.perplexity = 20.1}}),
              HasSubstr("within the noise between seeds (2 seeds and 2 seeds)"));
  EXPECT_THAT(verdict_of(dense, {{.perplexity = 17.9}, {.perplexity = 18.1}}),
              HasSubstr("beyond the noise between seeds (2 seeds and 2 seeds)"));
}

// One deviation for both, 0.1, and two degrees of freedom: 4.30 x 0.1 x sqrt(1/2 + 1/2) = 0.43.
TEST(Difference, IsBeyondNoiseFromStudentsBoundOn) {
  const Spread one = {20, 0.1, 2};
  EXPECT_EQ(difference_of(one, {20.42, 0.1, 2}), Difference::kWithinNoise);
  EXPECT_EQ(difference_of(one, {20.44, 0.1, 2}), Difference::kBeyondNoise);
  EXPECT_EQ(difference_of({20, record::kUnknown, 1}, {25, record::kUnknown, 1}),
            Difference::kUnknown);
  // A single seed is judged by the deviation of the other's: 12.71 x 0.1 x sqrt(1 + 1/2) = 1.56.
  EXPECT_EQ(difference_of(one, {21.5, record::kUnknown, 1}), Difference::kWithinNoise);
  EXPECT_EQ(difference_of(one, {21.6, record::kUnknown, 1}), Difference::kBeyondNoise);
}

TEST(Seeds, OfRunsThatDifferInNothingElseAreOneSystem) {
  const test::TemporaryFolder folder;
  const auto write = [&](const char* name, int seed, double rate) {
    test::write_run(folder / name, fmt::format("[training]\nsteps = 1\nseed = {}\nlog_every = {}\n"
                                               "[optimizer]\nlearning_rate = {}\n",
                                               seed, 5 + seed, rate));
    write_text_atomically(folder / name / "metrics.jsonl",
                          test::step_line(1, 2) + test::validation_line(1, 2));
  };
  write("a", 1, 0.001);
  write("b", 2, 0.001);
  write("c", 3, 0.002);
  const Comparison comparison =
      read_comparison({folder / "a", folder / "b", folder / "c"},
                      [](const config::Config&) { return ModelCounts(); });
  ASSERT_EQ(comparison.systems.size(), 2);
  EXPECT_EQ(comparison.systems[0].runs.size(), 2);
  EXPECT_EQ(comparison.systems[1].id, "c");
}

TEST(MeasuredOn, SaysHowMuchOfTheSplit) {
  record::LastValidation validation;
  EXPECT_EQ(measured_on(validation), "text of unknown length");
  validation.tokens = 16384;
  EXPECT_EQ(measured_on(validation), "16.4k tokens of the validation split");
  validation.windows = 64;
  validation.split_windows = 812;
  EXPECT_EQ(measured_on(validation),
            "64 of 812 windows spread over the validation split, 16.4k tokens");
  validation.whole_split = true;
  EXPECT_EQ(measured_on(validation), "the whole validation split, 16.4k tokens");
}

}  // namespace
}  // namespace ballast::pages
