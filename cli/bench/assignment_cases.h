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

// One problem to measure solvers on, and like scores whose prices make a warm start.
struct AssignmentCase {
  std::string scores;  // a kind or a file
  std::string part;    // "all", or of a file "odd rows"
  assignment::AssignmentProblem problem = {};
  std::optional<assignment::AssignmentProblem> like = {};
  std::vector<scores::StoredScores> memory = {};  // what both refer to
};

// A case that is made only when its turn comes, since large ones do not all fit in memory.
using CaseMaker = std::function<AssignmentCase()>;

// Generated scores; `like` are another batch of the same kind.
CaseMaker generated_case(scores::ScoreKind kind, int64_t tokens, int64_t experts, uint64_t seed);

// A file's scores whole, and its odd rows, which have its even rows for `like`. UserError, at once:
// a file that cannot be read, with fewer than two tokens, or with scores that are not finite.
std::vector<CaseMaker> file_cases(const std::string& path);

// Start prices for `case`, made from the optimal prices of the scores that are like it.
struct PriceStart {
  std::string name;  // "cold", "warm", "noisy" (10 % noise on warm), "random"
  std::vector<double> prices;
};
std::vector<PriceStart> price_starts(const AssignmentCase& made);

}  // namespace ballast::cli
