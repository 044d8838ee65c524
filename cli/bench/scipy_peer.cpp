// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/scipy_peer.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "ballast/assignment/active_problem.h"
#include "ballast/studio/scores/npy_file.h"
#include "ballast/system/error.h"
#include "ballast/system/json.h"
#include "ballast/system/log.h"

namespace ballast::cli {
namespace {

using nlohmann::json;

// Where experts do not divide the tokens, some places stay empty. Rows that score nothing stand for
// them: they fit the last column of an expert only, the one that may stay empty.
constexpr const char* kProgram = R"(
import json, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program that asks decides what Ctrl-C means
try:
    import numpy, scipy
    from scipy.optimize import linear_sum_assignment
except ImportError as error:
    print(json.dumps({"error": str(error)}), flush=True)
    sys.exit()
print(json.dumps({"version": scipy.__version__}), flush=True)
for line in sys.stdin:
    scores = numpy.load(line.rstrip("\n")).astype(numpy.float64)
    tokens, experts = scores.shape
    places = -(-tokens // experts)
    matrix = numpy.repeat(scores, places, axis=1)
    empty = matrix.shape[1] - tokens
    if empty:
        may_be_empty = numpy.arange(matrix.shape[1]) % places == places - 1
        never = -1 - 4 * matrix.shape[1] * numpy.abs(scores).max()
        matrix = numpy.vstack([matrix, numpy.tile(numpy.where(may_be_empty, 0, never), (empty, 1))])
    start = time.perf_counter()
    rows, columns = linear_sum_assignment(matrix, maximize=True)
    seconds = time.perf_counter() - start
    print(json.dumps({"milliseconds": 1e3 * seconds, "primal": float(matrix[rows, columns].sum())}), flush=True)
)";

// Pythons that may have scipy, from the nearest on.
std::vector<std::string> candidates() {
  std::vector<std::string> found;
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  for (const char* const name : {"python", "twin"}) {
    const fs::path python = program / ".." / ".." / ".deps" / name / "bin" / "python";
    if (fs::exists(python)) found.push_back(python.lexically_normal().string());
  }
  found.emplace_back("python3");
  return found;
}

}  // namespace

std::unique_ptr<ScipyPeer> ScipyPeer::find(const std::string& python) {
  if (!python.empty()) return std::unique_ptr<ScipyPeer>(new ScipyPeer(python));
  std::string reason;
  for (const std::string& candidate : candidates()) {
    try {
      return std::unique_ptr<ScipyPeer>(new ScipyPeer(candidate));
    } catch (const UserError& error) {
      reason = error.what();
    }
  }
  log_warning("no scipy to compare with: {} (`tools/setup --tests` installs one)", reason);
  return nullptr;
}

ScipyPeer::ScipyPeer(const std::string& python) {
  const std::string program =
      python.find('/') == std::string::npos ? python : fs::absolute(python).string();
  // In a folder of our own: Python looks for modules in the current one first.
  auto process = std::make_unique<ChildProcess>(std::vector<std::string>{program, "-c", kProgram},
                                                folder_.path().string());
  const json hello = parse_json_or_discard(process->read_line());
  if (!hello.is_object() || !hello.contains("version"))
    fail("{}: {}", python,
         hello.is_object() ? hello.value("error", "no scipy") : "no Python with scipy");
  version_ = hello["version"];
  process_ = std::move(process);
}

ScipyPeer::Answer ScipyPeer::solve(const assignment::AssignmentProblem& problem) {
  assignment::ActiveRows rows;
  const assignment::LoadBounds bounds;  // only rows are read
  const assignment::ActiveProblem active = rows.read(problem, bounds, 1);
  std::vector<float> scores;
  for (int64_t t = 0; t < active.tokens; ++t)
    scores.insert(scores.end(), active.row(t), active.row(t) + active.experts);
  const fs::path path = folder_.path() / "scores.npy";
  scores::write_npy(path, scores, active.experts);
  process_->write_line(path.string());
  const json answer = parse_json(process_->read_line());
  return {.milliseconds = answer.at("milliseconds"), .primal = answer.at("primal")};
}

}  // namespace ballast::cli
