// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "ballast/assignment/candidate_scan.h"
#include "ballast/assignment/plain_math.h"
#include "ballast/system/random.h"

namespace ballast::assignment {
namespace {

std::string output_of(const std::string& program) {
  std::string output;
  std::FILE* pipe = ::popen((BALLAST_BINARY_DIR "/" + program).c_str(), "r");
  if (pipe == nullptr) return "could not start";
  for (int c; (c = std::fgetc(pipe)) != EOF;) output.push_back(static_cast<char>(c));
  return ::pclose(pipe) == 0 ? output : "failed";
}

// Builds that use no vectors at all, AVX2 everywhere, and whatever this processor has best.
TEST(InstructionSets, GiveTheSameAssignmentsAndPricesToTheBit) {
  const std::string plain = output_of("exact_digest_plain");
  EXPECT_EQ(std::count(plain.begin(), plain.end(), '\n'), 60) << plain;
  EXPECT_EQ(output_of("exact_digest"), plain);
  if (__builtin_cpu_supports("avx2")) {
    EXPECT_EQ(output_of("exact_digest_avx2"), plain);
  }
}

TEST(PlainMath, IsCloseToTheCLibrarys) {
  for (double x = -40; x <= 40; x += 0.37) {
    EXPECT_NEAR(plain_exp(x) / std::exp(x), 1, 1e-9) << x;
    EXPECT_NEAR(plain_log(std::exp(x)), x, 1e-9 * std::max(1.0, std::fabs(x))) << x;
  }
}

struct Scanned {
  std::vector<int32_t> found, first, expert, deficit;
  bool operator==(const Scanned&) const = default;
};

Scanned scan_all(ScanRows scan_rows, const CandidateScan& scan, const std::vector<float>& scores,
                 int64_t rows) {
  std::vector<ScannedRow> scanned(rows);
  std::vector<int32_t> expert(rows * scan.experts + 16);
  std::vector<int32_t> deficit(rows * scan.experts + 16);
  const int64_t pairs = scan_rows(scan, scores.data(), scan.experts, rows,
                                  {scanned.data(), expert.data(), deficit.data()});
  Scanned all;
  all.expert.assign(expert.begin(), expert.begin() + pairs);
  all.deficit.assign(deficit.begin(), deficit.begin() + pairs);
  for (const ScannedRow& row : scanned) {
    all.found.push_back(row.found);
    all.first.push_back(row.first);
  }
  return all;
}

TEST(CandidateScan, FindsTheSameCandidatesWithEveryInstructionSet) {
  for (int64_t experts = 1; experts <= 70; ++experts) {
    RandomStream random(5, "scan", static_cast<uint64_t>(experts));
    const auto rows = static_cast<int64_t>(1 + random.below(kScanBlock));
    std::vector<float> scores(rows * experts);
    for (float& score : scores) {
      score = static_cast<float>(random.below(4) == 0 ? random.below(3) : random.normal());
    }
    scores[0] = 7.99F;
    std::vector<int32_t> prices(experts);
    for (int32_t& price : prices) {
      price = static_cast<int32_t>(random.below(5) == 0 ? (1U << 30) + 1 : random.below(1U << 26));
    }
    for (const int64_t reach :
         {int64_t{0}, int64_t{1} << 20, int64_t{1} << 26, (int64_t{1} << 31) - 1}) {
      const CandidateScan scan{
          .prices = prices.data(), .experts = experts, .units_per_score = 0x1p26F, .reach = reach};
      const Scanned plain = scan_all(scan_rows_with("plain"), scan, scores, rows);
      for (const std::string_view set : scan_instruction_sets()) {
        EXPECT_EQ(scan_all(scan_rows_with(set), scan, scores, rows), plain)
            << set << " " << experts;
      }
    }
  }
}

TEST(CandidateScan, KeepsTheExpertsWithinReachOfTheBest) {
  const std::vector<float> row = {1.0F, 4.0F, 2.5F, 4.0F, -3.0F};
  const std::vector<int32_t> prices = {0, 8, 0, 6, 0};  // profits, in quarters: 4, 8, 10, 10, -12
  const CandidateScan scan{
      .prices = prices.data(), .experts = 5, .units_per_score = 4.0F, .reach = 2};
  for (const std::string_view set : scan_instruction_sets()) {
    const Scanned found = scan_all(scan_rows_with(set), scan, row, 1);
    EXPECT_THAT(found.expert, testing::ElementsAre(1, 2, 3)) << set;
    EXPECT_THAT(found.deficit, testing::ElementsAre(2, 0, 0)) << set;
  }
}

}  // namespace
}  // namespace ballast::assignment
