// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "ballast/assignment/problem.h"
#include "ballast/system/file.h"
#include "cli/child_process.h"

namespace ballast::cli {

// scipy's linear_sum_assignment in a Python beside us. It knows no capacities: each expert becomes
// as many columns as it has places, so it is for small problems.
class ScipyPeer {
 public:
  // Starts `python`, or, if empty, the first Python near the program or on the path that has scipy.
  // Nothing, and the reason in the log, where there is none. UserError: a named one without scipy.
  static std::unique_ptr<ScipyPeer> find(const std::string& python);

  const std::string& version() const { return version_; }

  struct Answer {
    double milliseconds = 0;  // of linear_sum_assignment alone
    double primal = 0;
  };
  // Equal loads of a problem whose tokens all count.
  Answer solve(const assignment::AssignmentProblem& problem);

 private:
  explicit ScipyPeer(const std::string& python);

  TemporaryFolder folder_;  // where problems are handed over
  std::unique_ptr<ChildProcess> process_;
  std::string version_;
};

}  // namespace ballast::cli
