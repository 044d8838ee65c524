// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ballast/comm/mpirun_output.h"

namespace ballast {

struct LaunchOptions {
  int workers = 1;
  std::vector<std::string> command;  // the program and its arguments
  bool prefix_lines = false;         // "worker 3: " before each line of a worker's output
};

struct LaunchResult {
  int code = 0;                         // the program's exit code: 0 if all workers ended well
  std::optional<WorkerFailure> failed;  // the first worker that did not, where mpirun says which
  std::string reason;                   // for people; empty if all ended well
  int stops = 0;                        // how often this process was asked to stop
};

// The mpirun command that works as root, in containers without ssh, and with more workers than
// cores; all on this machine. Workers are not bound to cores: they set their threads themselves.
std::vector<std::string> mpirun_command(const LaunchOptions& options);

// For World::abort(): tells the launcher, if this is one of its workers, who ends the job. mpirun's
// own word may be lost when all end at once. Never throws.
void tell_launcher(int worker, int code) noexcept;

// Runs the workers and returns when all have ended. When one fails, mpirun ends the others.
// SIGINT and SIGTERM ask the workers to stop (SIGUSR1), which stderr is told once for all; the
// second time they end them, and the code is 128 + the signal. If this process dies, they end.
// stdin is empty for workers; their stderr goes through this process. REQUIRES: called before the
// process starts threads. UserError: there is no mpirun or no MPI plugin, this is one of several
// workers itself, or workers < 1.
LaunchResult run_workers(const LaunchOptions& options);

}  // namespace ballast
