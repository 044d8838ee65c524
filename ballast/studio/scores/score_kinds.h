// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ballast::scores {

// Score matrices to measure and attack solvers with.
enum class ScoreKind : uint8_t {
  kGauss,           // independent standard normal numbers
  kCluster,         // tokens in Zipf-sized clusters, experts of uneven norm: heavy skew
  kCommon,          // as early in training: nearly all tokens prefer the same experts, in one order
  kNearDuplicates,  // kCluster with little noise: many nearly equal tokens
  kPadded,          // kCluster, 30 % of the rows identical
  kQuantised,       // kCluster rounded to multiples of 1/4: ties everywhere
  kThreeValues,     // 0, 1 or 2
  kAllEqual,        // one score for all
  kEqualRows,       // one row for all tokens
  kOnePreferred,    // kGauss, and 100 more for expert 0
  kLowRank,         // a number of the token times one of the expert: all agree, or all but a sign
  kCollapsed,       // tokens nearly of two sorts: what differs within a sort is ever smaller parts
  kOutliers,        // kGauss, and in one token of 512 a score 1e10 times as large
};

std::span<const ScoreKind> all_score_kinds();
std::string_view score_kind_name(ScoreKind kind);   // "gauss", "near-duplicates", ...
std::string_view describe(ScoreKind kind);          // half a line for people
ScoreKind parse_score_kind(std::string_view name);  // UserError lists the names

// The experts are a function of (kind, experts, seed), the tokens also of `batch`: two batches are
// fresh tokens from one distribution, as two steps of training are.
struct ScoreRequest {
  ScoreKind kind = ScoreKind::kGauss;
  int64_t tokens = 0;
  int64_t experts = 1;
  uint64_t seed = 0;
  uint64_t batch = 0;
};

// Row-major [tokens, experts], the same on any number of threads (0: all cores). UserError:
// negative tokens, less than one expert.
std::vector<float> generate_scores(const ScoreRequest& request, size_t threads = 0);

}  // namespace ballast::scores
