// SPDX-License-Identifier: Apache-2.0
// Solves problems for tests/oracles/assignment_test.py: a line of JSON for each on stdin,
//   {"solver", "tokens", "experts", "scores" [T * E], and if wanted "lower" and "upper" [E]},
// and a line for each on stdout,
//   {"experts" [T], "valid", "primal", "dual", "gap"} or {"error"}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/assignment/solver.h"
#include "ballast/system/error.h"

namespace {

using nlohmann::json;

json solve(const json& given) {
  const auto scores = given.at("scores").get<std::vector<float>>();
  ballast::assignment::AssignmentProblem problem;
  problem.scores =
      ballast::assignment::score_matrix(scores.data(), given.at("tokens"), given.at("experts"));
  if (given.contains("lower")) problem.bounds = {given["lower"], given.at("upper")};
  ballast::assignment::Assignment result;
  try {
    const auto kind = ballast::assignment::parse_solver_kind(given.at("solver").get<std::string>());
    ballast::assignment::make_solver(kind)->solve(problem, {}, result);
  } catch (const ballast::UserError& error) {
    return {{"error", error.what()}};
  }
  const ballast::assignment::Certificate& found = result.certificate;
  return {{"experts", result.expert_of_token},
          {"valid", found.valid},
          {"primal", found.primal},
          {"dual", found.dual},
          {"gap", found.gap}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << solve(json::parse(line)).dump() << "\n";
  return 0;
}
