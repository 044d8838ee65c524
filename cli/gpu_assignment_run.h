// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cli/assignment_run.h"

namespace ballast::cli {

// A solver on the GPU. Milliseconds are the device's own, of a solver that has run before: the mean
// of ten launches behind each other, recorded as a graph, so that the host's work is not in them.
// `gap`: as in experts::AssignOptions. UserError: no GPU, or a solver that does not run there.
std::unique_ptr<AssignmentRun> make_gpu_assignment_run(assignment::SolverKind kind, double gap);

}  // namespace ballast::cli
