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
using testing::HasSubstr;

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

}  // namespace
}  // namespace ballast::pages
