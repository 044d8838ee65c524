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

// Every second token from `first` on.
assignment::ScoreMatrix every_second(assignment::ScoreMatrix matrix, int64_t first) {
  const int64_t size = matrix.type == assignment::ScoreType::kFloat32 ? 4 : 2;
  matrix.data = static_cast<const std::byte*>(matrix.data) + first * matrix.token_stride * size;
  matrix.tokens = (matrix.tokens - first + 1) / 2;
  matrix.token_stride *= 2;
  return matrix;
}

// Reads all that will be measured, so that a bad file is known before others took their time.
void check_measurable(const AssignmentCase& made) {
  if (made.problem.scores.tokens < 2)
    fail("{} holds {} tokens; want at least 2, since its odd rows are measured alone as well",
         made.scores, made.problem.scores.tokens);
  try {
    assignment::ActiveRows().read(made.problem, made.problem.bounds, 0);
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

CaseMaker generated_case(scores::ScoreKind kind, int64_t tokens, int64_t experts, uint64_t seed) {
  return [=] {
    AssignmentCase made{.scores = std::string(scores::score_kind_name(kind)), .part = "all"};
    for (const uint64_t batch : {1, 0}) {
      made.memory.push_back(scores::store_scores(
          scores::generate_scores(
              {.kind = kind, .tokens = tokens, .experts = experts, .seed = seed, .batch = batch}),
          tokens, experts));
    }
    made.problem = problem_of(made.memory[0].matrix);
    made.like = problem_of(made.memory[1].matrix);
    return made;
  };
}

std::vector<CaseMaker> file_cases(const std::string& path) {
  const auto whole = [path] {
    AssignmentCase made{.scores = path, .part = "all", .memory = {scores::read_scores(path)}};
    made.problem.scores = made.memory[0].matrix;
    assignment::check_shape(made.problem);
    made.problem = problem_of(made.memory[0].matrix);
    return made;
  };
  const auto halves = [whole] {
    AssignmentCase made = whole();
    made.part = "odd rows";
    made.problem = problem_of(every_second(made.memory[0].matrix, 1));
    made.like = problem_of(every_second(made.memory[0].matrix, 0));
    return made;
  };
  check_measurable(whole());
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
