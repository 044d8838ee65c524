// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/assignment_cases.h"

#include <cmath>

#include "ballast/assignment/solver.h"
#include "ballast/system/error.h"
#include "ballast/system/random.h"

namespace ballast::cli {
namespace {

assignment::AssignmentProblem problem_of(const assignment::ScoreMatrix& matrix) {
  assignment::AssignmentProblem problem;
  problem.scores = matrix;
  problem.bounds = assignment::equal_loads(matrix.tokens, matrix.experts);
  return problem;
}

// Every step-th token from `first` on.
assignment::ScoreMatrix some_tokens(assignment::ScoreMatrix matrix, int64_t first, int64_t step) {
  const int64_t size = matrix.type == assignment::ScoreType::kFloat32 ? 4 : 2;
  matrix.data = static_cast<const std::byte*>(matrix.data) + first * matrix.token_stride * size;
  matrix.tokens = (matrix.tokens - first + step - 1) / step;
  matrix.token_stride *= step;
  return matrix;
}

// As many problems of one size: each has every count-th token.
std::vector<assignment::AssignmentProblem> dealt(assignment::ScoreMatrix matrix, int64_t count) {
  std::vector<assignment::AssignmentProblem> problems;
  matrix.tokens -= matrix.tokens % count;
  for (int64_t i = 0; i < count; ++i) problems.push_back(problem_of(some_tokens(matrix, i, count)));
  return problems;
}

// Reads all that will be measured, so that a bad file is known before others took their time.
void check_measurable(const AssignmentCase& made, int64_t problems) {
  const assignment::ScoreMatrix& matrix = made.memory[0].matrix;
  if (matrix.tokens < 2 * problems)
    fail("{} holds {} tokens; want at least {}, since its odd rows are measured alone as well",
         made.scores, matrix.tokens, 2 * problems);
  try {
    const assignment::AssignmentProblem whole = problem_of(matrix);
    assignment::ActiveRows().read(whole, whole.bounds, 0);
  } catch (const UserError& error) {
    fail(
        "{}: {}; only finite scores are measured (`ballast assign --non-finite lowest` can solve "
        "such a file)",
        made.scores, error.what());
  }
}

double standard_deviation(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double x : values) {
    sum += x;
    squares += x * x;
  }
  const auto count = static_cast<double>(values.size());
  return std::sqrt(std::max(0.0, squares / count - sum / count * sum / count));
}

}  // namespace

CaseMaker generated_case(const GeneratedScores& wanted, int64_t problems) {
  return [=] {
    AssignmentCase made{.scores = std::string(scores::score_kind_name(wanted.kind)), .part = "all"};
    for (int64_t batch = 0; batch <= problems; ++batch) {
      made.memory.push_back(
          scores::store_scores(scores::generate_scores({.kind = wanted.kind,
                                                        .tokens = wanted.tokens,
                                                        .experts = wanted.experts,
                                                        .seed = wanted.seed,
                                                        .batch = static_cast<uint64_t>(batch)}),
                               wanted.tokens, wanted.experts));
      const assignment::AssignmentProblem problem = problem_of(made.memory.back().matrix);
      if (batch == 0) {
        made.like = problem;
      } else {
        made.problems.push_back(problem);
      }
    }
    return made;
  };
}

std::vector<CaseMaker> file_cases(const std::string& path, int64_t problems) {
  const auto read = [path] {
    AssignmentCase made{.scores = path, .part = "all", .memory = {scores::read_scores(path)}};
    assignment::AssignmentProblem problem;
    problem.scores = made.memory[0].matrix;
    assignment::check_shape(problem);
    return made;
  };
  const auto whole = [=] {
    AssignmentCase made = read();
    made.problems = dealt(made.memory[0].matrix, problems);
    return made;
  };
  const auto halves = [=] {
    AssignmentCase made = read();
    made.part = "odd rows";
    made.problems = dealt(some_tokens(made.memory[0].matrix, 1, 2), problems);
    made.like = problem_of(some_tokens(made.memory[0].matrix, 0, 2));
    return made;
  };
  check_measurable(read(), problems);
  return {whole, halves};
}

std::vector<PriceStart> price_starts(const AssignmentCase& made) {
  std::vector<PriceStart> starts = {{"cold", {}}};
  if (!made.like) return starts;
  assignment::Assignment solved;
  assignment::make_solver(assignment::SolverKind::kExact)->solve(*made.like, {}, solved);
  const double spread = standard_deviation(solved.prices);
  RandomStream random(1, "bench prices");
  PriceStart noisy{"noisy", solved.prices}, anything{"random", solved.prices};
  for (double& price : noisy.prices) price += 0.1 * spread * random.normal();
  for (double& price : anything.prices) price = (spread > 0 ? spread : 1.0) * random.normal();
  starts.push_back({"warm", solved.prices});
  starts.push_back(std::move(noisy));
  starts.push_back(std::move(anything));
  return starts;
}

}  // namespace ballast::cli
