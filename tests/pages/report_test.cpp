// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/system/file.h"
#include "tests/pages/run_folder.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::pages {
namespace {

using test::step_line;
using test::TemporaryFolder;
using test::validation_line;
using test::write_run;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

ModelCounts no_counts(const config::Config&) { return {}; }

std::string page_of(const TemporaryFolder& folder, const std::vector<fs::path>& paths) {
  return read_text(write_report(read_comparison(paths, no_counts), folder / "report").page);
}

void write_short_run(const fs::path& folder, double loss) {
  test::write_run(folder, "[model]\nvocabulary = 300\n[training]\nsteps = 4\n");
  std::string lines;
  for (int step = 1; step <= 4; ++step)
    lines +=
        test::step_line(step, loss + 1.0 / step) + test::validation_line(step, loss + 1.0 / step);
  write_text_atomically(folder / "metrics.jsonl", lines);
}

TEST(Report, WhatIsNeitherRunNorExperimentIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(test::error_of([&] { read_comparison({folder / "none"}, no_counts); }),
              testing::AllOf(HasSubstr("none is neither a run nor an experiment"),
                             HasSubstr("run.json or experiment.json")));
  write_text_atomically(folder / "experiment.json", "{");
  EXPECT_THAT(test::error_of([&] { read_comparison({folder.path()}, no_counts); }),
              HasSubstr("experiment.json is damaged"));
}

TEST(Report, ARunWithoutAnyStepSaysWhatIsMissingInPlaceOfFigures) {
  const TemporaryFolder folder;
  test::write_run(folder / "run", "[training]\nsteps = 4\n");
  const std::string page = page_of(folder, {folder / "run"});
  EXPECT_THAT(page, HasSubstr("There was no validation yet"));
  EXPECT_THAT(page, HasSubstr("Too few steps were done"));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST(Report, ADenseRunHasNoSectionsOfExperts) {
  const TemporaryFolder folder;
  write_short_run(folder / "run", 2);
  const std::string page = page_of(folder, {folder / "run"});
  EXPECT_THAT(page, HasSubstr("<figure id=\"figure-perplexity_time\""));
  EXPECT_THAT(page, HasSubstr("<figure id=\"figure-speed\""));
  EXPECT_THAT(page, Not(HasSubstr("id=\"balance\"")));
  EXPECT_THAT(page, Not(HasSubstr("id=\"assignment\"")));
}

TEST(Report, SentencesHoldTheRunsOwnNumbers) {
  const TemporaryFolder folder;
  write_short_run(folder / "run", 2);
  // exp(2.25) after 4 s and 400 tokens; exp(3) after 100.
  const std::string page = page_of(folder, {folder / "run"});
  EXPECT_THAT(page, HasSubstr("After 4.0s of training the validation perplexity is 9.49."));
  EXPECT_THAT(page, HasSubstr("goes from 20.09 after 100 tokens to 9.49 after 400"));
}

TEST(Report, HasTheNameOfItsRun) {
  const TemporaryFolder folder;
  write_short_run(folder / "my run", 2);
  const std::string page = page_of(folder, {folder / "my run"});
  EXPECT_THAT(page, HasSubstr("<title>my run · dense · Ballast report</title>"));
  EXPECT_THAT(page, HasSubstr("<h1>my run</h1>\n<p class=\"what\">dense</p>"));
}

TEST(Report, HasTheNamesOfAFewRunsAndTheNumberOfMany) {
  const TemporaryFolder folder;
  std::vector<fs::path> paths;
  const auto title = [&] { return read_comparison(paths, no_counts).title; };
  for (const char* name : {"a/run", "b/run", "c", "d"}) {
    write_short_run(folder / name, 2);
    paths.push_back(folder / name);
  }
  EXPECT_EQ(title(), "4 runs");
  paths.pop_back();
  EXPECT_EQ(title(), "a/run, b/run and c");
}

TEST(Report, RunsOfOneSystemAreToldApartByTheirFolders) {
  const TemporaryFolder folder;
  write_short_run(folder / "first", 2);
  write_short_run(folder / "second", 1.9);
  const Comparison comparison = read_comparison({folder / "first", folder / "second"}, no_counts);
  EXPECT_EQ(comparison.systems[0].title, "dense (first)");
  EXPECT_EQ(comparison.systems[1].title, "dense (second)");
  EXPECT_NE(comparison.systems[0].style, comparison.systems[1].style);
  EXPECT_THAT(
      page_of(folder, {folder / "first", folder / "second"}),
      HasSubstr("dense (second) has the lowest perplexity, 8.58, 9.5 % below dense (first)"));
}

TEST(Report, TextsOfARunAreEscaped) {
  const TemporaryFolder folder;
  write_short_run(folder / "run", 2);
  write_text_atomically(folder / "run/samples.txt", "== step 4 ==\n  <script>alert(1)</script>\n");
  const std::string page = page_of(folder, {folder / "run"});
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
}

TEST(Report, ThePageNamesNoAddressOfANetwork) {
  const TemporaryFolder folder;
  write_short_run(folder / "run", 2);
  std::string page = page_of(folder, {folder / "run"});
  // The names of XML's vocabularies are no addresses to load from.
  for (size_t at; (at = page.find("http://www.w3.org/2000/svg")) != std::string::npos;)
    page.erase(at, 26);
  EXPECT_THAT(page, Not(HasSubstr("http:")));
  EXPECT_THAT(page, Not(HasSubstr("https:")));
  EXPECT_THAT(page, Not(HasSubstr("src=")));
  EXPECT_THAT(page, Not(HasSubstr("url(")));
}

// A system with one run, trained; BASE ones have 8 experts.
record::SystemRecord system_record(const std::string& id, const std::string& title,
                                   const std::string& run) {
  record::SystemRecord system;
  system.id = system.kind = id;
  system.title = system.words = title;
  if (id == "base") system.experts = 8;
  system.runs = {{1, run}};
  system.status = record::Progression::kTrained;
  return system;
}

TEST(Report, AnExperimentThatGoesOnShowsWhatIsThere) {
  const TemporaryFolder folder;
  write_short_run(folder / "runs/dense-s1", 2);
  record::SystemRecord dense = system_record("dense", "dense", "runs/dense-s1");
  dense.learning_rate = 0.002;
  dense.sweep = {{0.001, 5, 3.5}, {0.002, 5, 3.25}, {0.004, 5, std::nullopt}};
  record::SystemRecord base = system_record("base", "BASE x1", "runs/base-s1");
  base.status = record::Progression::kMeasured;
  record::Experiment experiment;
  experiment.title = "Dense and BASE";
  experiment.panels = {{"8 experts", {"dense", "base"}}};
  experiment.systems = {dense, base};
  record::save_experiment(folder / record::kExperimentFile, experiment);
  const Comparison comparison = read_comparison({folder.path()}, no_counts);
  EXPECT_EQ(comparison.title, "Dense and BASE");
  ASSERT_EQ(comparison.panels.size(), 1);
  EXPECT_THAT(comparison.panels[0].systems, testing::ElementsAre(0, 1));
  EXPECT_THAT(comparison.notes, Contains(HasSubstr("base: measured so far")));
  const std::string page = page_of(folder, {folder.path()});
  EXPECT_THAT(page, HasSubstr("not trained yet"));
  EXPECT_THAT(page, HasSubstr("<b>3.2500</b>"));
  EXPECT_THAT(page, HasSubstr("diverged"));
}

// Their own clocks told 1 s a step, as they shared the hardware; alone a step took 0.25 s.
TEST(Report, SystemsTrainedSideBySideHaveTheTimesMeasuredAlone) {
  const TemporaryFolder folder;
  write_short_run(folder / "runs/dense-s1", 2);
  const auto read = [&](int at_once) {
    record::SystemRecord dense = system_record("dense", "dense", "runs/dense-s1");
    dense.step_seconds = 0.25;
    dense.step_parts = {{"attention", 0.125}};
    record::Experiment experiment;
    experiment.at_once = at_once;
    experiment.panels = {{"", {"dense"}}};
    experiment.systems = {dense};
    record::save_experiment(folder / record::kExperimentFile, experiment);
    return read_comparison({folder.path()}, no_counts);
  };
  const Comparison alone = read(1), shared = read(3);
  const RunRecord &own = alone.systems[0].runs[0], &timed = shared.systems[0].runs[0];
  EXPECT_EQ(own.seconds(), 4);
  EXPECT_EQ(own.steps[3].tokens_per_second, 100);
  EXPECT_EQ(timed.seconds(), 1);
  EXPECT_EQ(timed.validations[1].seconds, 0.5);
  EXPECT_EQ(timed.steps[3].tokens_per_second, 400);
  EXPECT_THAT(shared.facts, Contains(HasSubstr("side by side: 3")));
  EXPECT_THAT(alone.facts, Not(Contains(HasSubstr("side by side"))));
}

// An experiment of two systems, trained side by side; one came to step 4 of 9.
void write_shared_experiment(const fs::path& folder, const std::map<std::string, double>& parts) {
  write_short_run(folder / "runs/dense", 2);
  test::write_run(folder / "runs/base",
                  "[model]\nvocabulary = 300\n[training]\nsteps = 9\n[experts]\nlayers = 1\n");
  std::string lines;
  for (int step = 1; step <= 4; ++step)
    lines += fmt::format(
        R"({{"step": {0}, "loss": 2, "tokens": {0}00, "seconds": {0}, "tokens_per_second": 100, )"
        R"("parts": {{"assignment": 0.5}}, "layers": [{{"layer": 1, "assign_seconds": 0.5}}]}})"
        "\n",
        step);
  write_text_atomically(folder / "runs/base/metrics.jsonl", lines + test::validation_line(4, 1));
  record::Experiment experiment;
  experiment.at_once = 2;
  experiment.panels = {
      {"8 experts",
       {"dense", "base"},
       record::ClusterEstimate{8, "v100", "n", {{"dense", 51}, {"base", 62}}}},
      {"others", {"dense"}, record::ClusterEstimate{128, "v100", "n", {{"dense", 73}}}}};
  experiment.systems = {system_record("dense", "Dense", "runs/dense"),
                        system_record("base", "BASE x1", "runs/base")};
  for (record::SystemRecord& system : experiment.systems) {
    system.step_seconds = 0.25;
    system.step_parts = parts;
  }
  record::save_experiment(folder / record::kExperimentFile, experiment);
}

TEST(Report, WhatWasNotMeasuredAloneIsLeftOut) {
  const TemporaryFolder folder;
  write_shared_experiment(folder.path(), {});
  const std::string page = page_of(folder, {folder.path()});
  EXPECT_THAT(page, HasSubstr("trained side by side: times of parts were not measured alone."));
  EXPECT_THAT(page, HasSubstr("Dense 400 (measured alone) and BASE x1 400 (measured alone)."));
  EXPECT_THAT(page, Not(HasSubstr("of training time")));
  EXPECT_THAT(page, Not(HasSubstr("Tokens a second over the run")));
  EXPECT_THAT(page, Not(HasSubstr("Where the time goes</title>")));
}

TEST(Report, PartsThatWereMeasuredAloneAreTold) {
  const TemporaryFolder folder;
  write_shared_experiment(folder.path(), {{"assignment", 0.05}});
  const std::string page = page_of(folder, {folder.path()});
  EXPECT_THAT(page, HasSubstr("they take 20 % of training time"));
  EXPECT_THAT(page, HasSubstr("Where the time goes</title>"));
}

TEST(Report, HalfTrainedSystemsSaySoAndAreNotCompared) {
  const TemporaryFolder folder;
  write_shared_experiment(folder.path(), {});
  const std::string page = page_of(folder, {folder.path()});
  EXPECT_THAT(page, HasSubstr("BASE x1 <small>at step 4 of 9</small>"));
  EXPECT_THAT(page, HasSubstr("8 experts: Dense was trained to its end and validated, it alone: "
                              "perplexity 9.49."));
}

TEST(Report, PlansOfAPanelAreOfOneClusterWhichIsNamed) {
  const TemporaryFolder folder;
  write_shared_experiment(folder.path(), {});
  const Comparison comparison = read_comparison({folder.path()}, no_counts);
  ASSERT_EQ(comparison.panels.size(), 2);
  const System &dense = comparison.systems[0], &base = comparison.systems[1];
  EXPECT_EQ(comparison.panels[0].planned_rate(dense), 51);
  EXPECT_EQ(comparison.panels[0].planned_rate(base), 62);
  EXPECT_EQ(comparison.panels[1].planned_rate(dense), 73);
  EXPECT_TRUE(std::isnan(comparison.panels[1].planned_rate(base)));
  const std::string page = page_of(folder, {folder.path()});
  EXPECT_THAT(page, HasSubstr("what the cost model expects of 8 x v100, n, of every row; each "));
  EXPECT_THAT(page, HasSubstr("what the cost model expects of 128 x v100, n, of every row; each "));
  for (const char* rate : {">51<", ">62<", ">73<"}) EXPECT_THAT(page, HasSubstr(rate));
}

// A finished BASE run whose last validation was better with priced routing.
void write_priced_run(const fs::path& folder) {
  test::write_run(folder,
                  "[model]\nvocabulary = 300\n[training]\nsteps = 4\n[experts]\nlayers = 1\n");
  std::string lines;
  for (int step = 1; step <= 4; ++step) lines += test::step_line(step, 3);
  lines += test::validation_line(2, 3);
  lines +=
      R"({"step": 4, "valid_loss": 2.5, "experts": [{"layer": 2, "loads": [4, 5]}], "other_routing": )"
      R"({"routing": "priced", "loss": 2.0, "experts": [{"layer": 2, "loads": [4, 5]}]}})"
      "\n";
  write_text_atomically(folder / "metrics.jsonl", lines);
}

TEST(Report, OfGreedyAndPricedRoutingTheBetterIsShownAndNamed) {
  const TemporaryFolder folder;
  write_short_run(folder / "dense", 2);  // ends at exp(2.25)
  write_priced_run(folder / "base");
  const std::string page = page_of(folder, {folder / "dense", folder / "base"});
  EXPECT_THAT(page, HasSubstr("BASE x1 with priced routing has the lowest perplexity, 7.39, 22.1 % "
                              "below dense (9.49)"));
  EXPECT_THAT(page, HasSubstr("7.39 <small>priced</small>"));
  // At the end the better one; lines, and perplexities at equal tokens, are of greedy routing.
  EXPECT_THAT(page, HasSubstr("dense 9.49 and BASE x1 with priced routing 7.39 (-22.1 %)"));
  EXPECT_THAT(page, HasSubstr("BASE x1 with greedy routing 12.18"));
  EXPECT_THAT(page, HasSubstr("12.18 <small>greedy</small>"));
  EXPECT_THAT(page, HasSubstr("BASE x1, greedy"));
  EXPECT_THAT(page_of(folder, {folder / "base"}),
              AllOf(HasSubstr("the validation perplexity is 7.39 with priced routing."),
                    HasSubstr("Validation perplexity with greedy routing goes from 20.09")));
}

TEST(Report, AtEqualTokensThereAreNoDifferencesInPercent) {
  const TemporaryFolder folder;
  write_short_run(folder / "first", 2);
  write_short_run(folder / "second", 1.9);
  EXPECT_THAT(
      page_of(folder, {folder / "first", folder / "second"}),
      HasSubstr("after 400 tokens it is dense (first) 9.49 and dense (second) 8.58. Systems "
                "that train on more tokens are still in the middle of their decay"));
}

TEST(Report, LayersAreCountedOneByOneAndMapsOfLaterOnesAreFiles) {
  const TemporaryFolder folder;
  test::write_run(folder / "run", "[experts]\nlayers = 2\ncount = 2\n[training]\nsteps = 1\n");
  write_text_atomically(folder / "run/metrics.jsonl",
                        test::step_line(1, 3) + test::validation_line(1, 3));
  write_text_atomically(folder / "run/validation.json",
                        R"({"format": "ballast-validation", "version": 1, "step": 1, "routings": [
      {"routing": "greedy", "loss": 2, "domains": [{"name": "law", "tokens": 9000, "loss": 2}], "layers": [
        {"layer": 2, "name": "layer 2", "loads": [4, 0], "domain_loads": [[4], [0]], "domain_bits": 0},
        {"layer": 5, "name": "layer 5", "loads": [1, 3], "domain_loads": [[1], [3]], "domain_bits": 0.5}
      ]}]})");
  const std::string page = page_of(folder, {folder / "run"});
  EXPECT_THAT(page, HasSubstr("greedy 1.75 (mean over 2 layers; 1 expert without a token)"));
  EXPECT_THAT(page, HasSubstr("<figure id=\"figure-domains\""));
  EXPECT_THAT(page, Not(HasSubstr("<figure id=\"figure-domains_2\"")));
  EXPECT_THAT(page, HasSubstr("<a href=\"figures/domains_2.svg\">"));
  EXPECT_TRUE(fs::exists(folder / "report/figures/domains_2.svg"));
  EXPECT_THAT(page, HasSubstr("expert 0 (100 % of tokens) for law, 1.0 times"));
  EXPECT_THAT(page, HasSubstr("0.50 of 0.81 bits"));
}

TEST(Report, OneValidationIsNoCourse) {
  const TemporaryFolder folder;
  test::write_run(folder / "run", "[model]\nvocabulary = 300\n[training]\nsteps = 1\n");
  write_text_atomically(folder / "run/metrics.jsonl",
                        test::step_line(1, 3) + test::validation_line(1, 3));
  EXPECT_THAT(page_of(folder, {folder / "run"}),
              HasSubstr("Validation perplexity is 20.09 after 100 tokens."));
}

TEST(Report, FiguresLieBesideThePage) {
  const TemporaryFolder folder;
  write_short_run(folder / "run", 2);
  const WrittenReport written =
      write_report(read_comparison({folder / "run"}, no_counts), folder / "report");
  EXPECT_TRUE(written.has_png);
  EXPECT_THAT(written.figures, Contains(folder / "report/figures/perplexity_tokens.svg"));
  EXPECT_THAT(written.figures, Contains(folder / "report/figures/perplexity_tokens.png"));
  for (const fs::path& figure : written.figures) EXPECT_GT(fs::file_size(figure), 500) << figure;
}

TEST(Report, OnlyAReportIsReplaced) {
  const TemporaryFolder folder;
  write_short_run(folder / "run", 2);
  const auto report_to = [&](const fs::path& out) {
    return test::error_of([&] { write_report(read_comparison({folder / "run"}, no_counts), out); });
  };
  EXPECT_EQ(report_to(folder / "out"), "no error");
  EXPECT_EQ(report_to(folder / "out"), "no error");
  make_folder(folder / "empty");
  EXPECT_EQ(report_to(folder / "empty"), "no error");
  make_folder(folder / "site");
  write_text_atomically(folder / "site/index.html", "<title>my home</title>");
  EXPECT_THAT(report_to(folder / "site"), HasSubstr("site/index.html was not written by"));
  EXPECT_EQ(read_text(folder / "site/index.html"), "<title>my home</title>");
  EXPECT_FALSE(fs::exists(folder / "site/figures"));
  EXPECT_THAT(report_to(folder / "run"), HasSubstr("run is not empty and holds no report"));
  EXPECT_THAT(report_to(folder / "run/run.json"), HasSubstr("run.json is a file"));
  write_text_atomically(folder / "site/index.html", "<title>x · Ballast report</title>");
  EXPECT_EQ(report_to(folder / "site"), "no error");  // of a version before the marker
}

}  // namespace
}  // namespace ballast::pages
