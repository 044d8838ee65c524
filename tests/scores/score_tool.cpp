// SPDX-License-Identifier: Apache-2.0
// Reads and writes files for tests/oracles/scores_test.py.
//   score_tool read WHERE..              a line for each: {"type", "shape", "scores"} or {"error"}
//   score_tool write ids|prices FILE..   < [1, 2, 3]
#include <bit>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/assignment/active_problem.h"
#include "ballast/studio/scores/score_files.h"
#include "ballast/system/error.h"

namespace {

using nlohmann::json;

constexpr const char* kTypes[] = {"float32", "bfloat16", "float16"};

// Scores as the bits of fp32, since JSON has no NaN.
json read(const std::string& where) {
  try {
    const ballast::scores::StoredScores stored = ballast::scores::read_scores(where);
    ballast::assignment::AssignmentProblem problem;
    problem.scores = stored.matrix;
    problem.non_finite = ballast::assignment::NonFinite::kForbid;
    const auto& [data, type, tokens, experts, token_stride, expert_stride] = stored.matrix;
    ballast::assignment::ActiveRows rows;
    const ballast::assignment::LoadBounds bounds =
        ballast::assignment::equal_loads(tokens, experts);
    const ballast::assignment::ActiveProblem active = rows.read(problem, bounds, 1);
    json bits = json::array();
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t e = 0; e < experts; ++e)
        bits.push_back(std::bit_cast<uint32_t>(active.row(t)[e]));
    return {{"type", kTypes[static_cast<size_t>(type)]},
            {"shape", {tokens, experts}},
            {"scores", bits}};
  } catch (const ballast::UserError& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 2) return 2;
  if (arguments[0] == "read") {
    for (size_t i = 1; i < arguments.size(); ++i)
      std::cout << read(arguments[i]).dump(-1, ' ', false, json::error_handler_t::replace) << "\n";
    return 0;
  }
  const json numbers = json::parse(std::cin);
  for (size_t i = 2; i < arguments.size(); ++i) {
    if (arguments[1] == "ids")
      ballast::scores::write_numbers(arguments[i], numbers.get<std::vector<int32_t>>());
    else
      ballast::scores::write_numbers(arguments[i], numbers.get<std::vector<double>>());
  }
  return 0;
}
