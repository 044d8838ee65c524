// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/studio/pages/report.h"
#include "ballast/system/file.h"
#include "tests/pages/run_folder.h"
#include "tests/support/temporary_folder.h"

namespace ballast::pages {
namespace {

using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

ModelCounts no_counts(const config::Config&) { return {}; }

std::string page_of(const TemporaryFolder& folder, const std::vector<fs::path>& paths) {
  return read_text(write_report(read_comparison(paths, no_counts), folder / "report").page);
}

// What tells whether a router tells tokens apart stands with each layer.
TEST(AssignmentSection, EveryLayerHasItsBestExpertsGateAndDirections) {
  const TemporaryFolder folder;
  test::write_run(folder / "base",
                  "[model]\nvocabulary = 300\n[training]\nsteps = 4\n[experts]\nlayers = 2\n");
  std::string lines;
  for (int step = 1; step <= 4; ++step)
    lines += fmt::format(
        R"({{"step": {0}, "loss": 2, "tokens": {0}00, "seconds": {0}, "tokens_per_second": 100, )"
        R"("layers": [{{"layer": 1, "greedy_share": 0.5, "mean_gate": 0.125}}, )"
        R"({{"layer": 2, "greedy_share": 0.25, "mean_gate": 0.375}}]}})"
        "\n",
        step);
  lines +=
      R"({"step": 4, "valid_loss": 2.5, "experts": [)"
      R"({"layer": 1, "loads": [4, 5], "first_direction_share": 0.75}, {"layer": 2, "loads": [4, 5]}]})"
      "\n";
  write_text_atomically(folder / "base" / "metrics.jsonl", lines);
  const std::string page = page_of(folder, {folder / "base"});
  EXPECT_THAT(page, HasSubstr("Mean gate"));
  const size_t first = page.find("layer 1</td>"), second = page.find("layer 2</td>");
  ASSERT_TRUE(first != std::string::npos && second != std::string::npos && first < second);
  const std::string row = page.substr(first, second - first), next = page.substr(second, 200);
  for (const char* cell : {">50 %<", ">0.125<", ">75 %<"}) EXPECT_THAT(row, HasSubstr(cell));
  for (const char* cell : {">25 %<", ">0.375<", ">-<"}) EXPECT_THAT(next, HasSubstr(cell));
}

// A BASE run of four steps by this solver, whose layers tell `number`.
void write_solved_run(const fs::path& folder, const std::string& solver,
                      const std::string& number) {
  test::write_run(folder,
                  fmt::format("[model]\nvocabulary = 300\n[training]\nsteps = 4\n[experts]\n"
                              "layers = 1\ngroups = 1\nsolver = {}\n",
                              solver));
  std::string lines;
  for (int step = 1; step <= 4; ++step)
    lines += fmt::format(
        R"({{"step": {0}, "loss": 2, "tokens": {0}00, "seconds": {0}, "tokens_per_second": 100, )"
        R"("layers": [{{"layer": 1, "greedy_share": 0.5, {1}}}]}})"
        "\n",
        step, number);
  write_text_atomically(folder / "metrics.jsonl", lines + test::validation_line(4, 1));
}

TEST(AssignmentSection, OnlyACertificateIsCalledAGap) {
  const TemporaryFolder folder;
  write_solved_run(folder / "exact", "\"exact\"", R"("relative_gap": 0.01)");
  write_solved_run(folder / "auction", "\"auction\"", R"("shortfall_bound": 0.03)");
  write_solved_run(folder / "older", "\"auction\"", R"("relative_gap": 0.04)");
  EXPECT_THAT(page_of(folder, {folder / "exact"}),
              AllOf(HasSubstr("of 4 assignments the worst is at most 0.01 of its value below"),
                    HasSubstr("Gap to the optimum")));
  for (const auto& [run, bound] : {std::pair("auction", "0.03"), std::pair("older", "0.04")}) {
    const std::string page = page_of(folder, {folder / run});
    EXPECT_THAT(page, HasSubstr("by auction 4 assignments, of which none is proved to be optimal"));
    EXPECT_THAT(page, HasSubstr(fmt::format("the worst may lack up to {} of its value", bound)));
    EXPECT_THAT(page, HasSubstr("What an inexact solver may lack"));
    EXPECT_THAT(page, Not(HasSubstr("Gap to the optimum")));
    EXPECT_THAT(page, Not(HasSubstr("assignments are optimal")));
  }
  // Side by side each is told by its own words.
  EXPECT_THAT(page_of(folder, {folder / "exact", folder / "auction"}),
              AllOf(HasSubstr("the worst is at most 0.01"), HasSubstr("may lack up to 0.03")));
}

TEST(AssignmentSection, TellsGapsByWhatTheyArePartsOf) {
  const TemporaryFolder folder;
  const std::string allowing = "\"exact\"\nassignment_gap = 0.001";
  write_solved_run(folder / "kept", allowing, R"("relative_gap": 0.0007)");
  write_solved_run(folder / "missed", allowing, R"("relative_gap": 0.02)");
  EXPECT_THAT(page_of(folder, {folder / "kept"}),
              HasSubstr("the worst is at most 0.0007 of what the optimum has above a blind spread "
                        "below the optimum (0.001 is allowed)"));
  EXPECT_THAT(page_of(folder, {folder / "missed"}),
              HasSubstr("(0.001 is allowed, and exceeded in 4 steps of a layer)"));
}

}  // namespace
}  // namespace ballast::pages
