// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ballast/assignment/problem.h"
#include "ballast/studio/scores/score_files.h"
#include "ballast/studio/scores/score_kinds.h"

namespace ballast::cli {

// Problems to measure solvers on, and like scores whose prices make a warm start.
struct AssignmentCase {
  std::string scores;                                        // a kind or a file
  std::string part;                                          // "all", or of a file "odd rows"
  std::vector<assignment::AssignmentProblem> problems = {};  // of one size; at least one
  std::optional<assignment::AssignmentProblem> like = {};
  std::vector<scores::StoredScores> memory = {};  // what both refer to

  int64_t tokens() const { return problems.front().scores.tokens; }  // of each
  int64_t experts() const { return problems.front().scores.experts; }
};

// A case that is made only when its turn comes, since large ones do not all fit in memory.
using CaseMaker = std::function<AssignmentCase()>;

// Generated scores, of as many batches as problems are wanted; `like` are another batch of the same
// kind.
struct GeneratedScores {
  scores::ScoreKind kind;
  int64_t tokens, experts;
  uint64_t seed;
};
CaseMaker generated_case(const GeneratedScores& scores, int64_t problems);

// A file's scores whole, and its odd rows, which have its even rows for `like`; of either every
// `problems`-th row makes a problem, and what rows do not go round are left out. UserError, at
// once: a file that cannot be read, with fewer than two tokens a problem, or with scores that are
// not finite.
std::vector<CaseMaker> file_cases(const std::string& path, int64_t problems);

// Start prices for `case`, made from the optimal prices of the scores that are like it.
struct PriceStart {
  std::string name;  // "cold", "warm", "noisy" (10 % noise on warm), "random"
  std::vector<double> prices;
};
std::vector<PriceStart> price_starts(const AssignmentCase& made);

}  // namespace ballast::cli
