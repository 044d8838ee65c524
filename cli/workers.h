// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ballast/comm/world.h"

namespace CLI {
class App;
}

namespace ballast::cli {

// How a command runs with workers. With --workers N this process starts N of itself (mpirun) and
// waits. Without, it is a worker: alone, or one of those that mpirun or srun started.
struct WorkerOptions {
  int64_t workers = 0;             // 0: as mpirun or srun started us
  std::vector<std::string> hosts;  // only with `workers`: where to start them; empty: here
  int64_t max_restarts = 0;        // only with `workers`
  bool prefix_lines = false;
  double deadline_seconds = 300;
  std::string engine = "auto";  // auto, mpi or nccl: how tensors on GPUs go from worker to worker
};

// --workers, --hosts, --max-restarts, --prefix-lines, --deadline, --engine.
void add_worker_options(CLI::App& command, WorkerOptions& options);

// Whether this process should start workers rather than be one. UserError: it should, but is one of
// several itself.
bool must_launch(const WorkerOptions& options);

// Starts this program with its own command line, less the options of starting and of output (what
// workers say goes through this process), and with `extra_arguments`, for each worker; returns the
// exit code when all have ended. After a failure that a new start may mend (docs/workers.md),
// starts again, up to max_restarts times, with `restart_arguments` too ({"--resume", "auto"}), and
// says so on stderr. Options in arguments
// ("--name", "value") take the place of those of the command line.
int launch_workers(const WorkerOptions& options, const std::vector<std::string>& extra_arguments,
                   const std::vector<std::string>& restart_arguments);

// Opens the world, runs `body`, closes the world; returns the exit code, which is body's if it
// returns. If it throws, prints what, with "worker 3: " before it unless it is worker 0 (what all
// have in common is said once), and ends the job. What body prints to stdout is for worker 0 alone.
// Where it computes on a GPU, body calls World::compute_on().
int run_as_worker(const WorkerOptions& options, const std::function<int(comm::World&)>& body);

}  // namespace ballast::cli
