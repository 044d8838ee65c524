// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ballast/comm/mpirun_output.h"

namespace ballast::comm {

// What a job ends with where a worker did not come in time, or is gone. sysexits.h: "temporary
// failure, the user is invited to retry".
inline constexpr int kWorkersLost = 75;

struct LaunchOptions {
  int workers = 1;
  std::vector<std::string> command;  // the program and its arguments
  bool prefix_lines = false;         // "worker 3: " before each line of a worker's output
  double deadline_seconds = 300;     // for all workers to arrive (open_world), and to end
  // Machines to start them on, "name" or "name:workers"; empty: this one.
  std::vector<std::string> hosts = {};
};

struct LaunchResult {
  int code = 0;                         // the program's exit code: 0 if all workers ended well
  std::optional<WorkerFailure> failed;  // the first worker that did not, where mpirun says which
  std::string reason;                   // for people; empty if all ended well
  int stops = 0;                        // how often this process was asked to stop
  bool arrived = false;                 // all workers had found each other
};

// The mpirun command that works as root, in containers without ssh, and with more workers than
// cores; on this machine alone, also within an allocation of several, unless others are named.
// Workers are not bound to cores: they set their threads themselves.
std::vector<std::string> mpirun_command(const LaunchOptions& options);

// Runs the workers and returns when all have ended and nothing is left of them. When one fails,
// mpirun ends the others; when mpirun dies or does not obey, this process does. SIGINT, SIGTERM and
// SIGUSR1 ask the workers to stop (SIGUSR1); stderr says so once for all, and a suspended worker is
// woken. The second time they end the workers, and the code is 128 + the signal. If this process
// dies, the workers end. Workers that have not arrived by the deadline end the job with
// kWorkersLost. On other machines it is mpirun's daemon, and each worker at its own deadline, that
// ends what is there.
// Signals within kOneRequest count as one (system/stop_signal.h). stdin is empty for workers; their
// stdout goes through this process (where it could not be written, std::ferror tells), and so does
// their stderr, as system/console.h does it.
// REQUIRES: called before the process starts threads. UserError: there is no mpirun or no MPI
// plugin, this is one of several workers itself, or workers < 1.
LaunchResult run_workers(const LaunchOptions& options);

}  // namespace ballast::comm
