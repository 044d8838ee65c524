// SPDX-License-Identifier: Apache-2.0
#include "cli/workers.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "ballast/comm/agreement.h"
#include "ballast/comm/launch.h"
#include "ballast/comm/notebook.h"
#include "ballast/config/config.h"
#include "ballast/system/error.h"
#include "cli/at_least.h"
#include "cli/command.h"
#include "cli/command_words.h"
#include "cli/complaint.h"
#include "cli/output_options.h"

namespace ballast::cli {
namespace {

constexpr int kMostWorkers = 4096;
// Between starts where not even the start has worked: a machine may be about to come back.
constexpr std::chrono::seconds kForMachines{10};

using Words = std::vector<std::string>;

bool is_option(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

// Whether another start may mend it: not the user's mistake, nor what the command itself returned.
bool may_be_mended(const comm::LaunchResult& result) {
  if (result.code == 0 || result.code == kUserMistake || result.stops > 0) return false;
  const bool told = result.failed && result.failed->told;
  if (told) return result.code == comm::kWorkersLost || result.code == kOurFault;
  return result.failed || result.code > 128;  // else mpirun itself could not start
}

// Whether no worker has said yet why the job ended.
bool is_unexplained(const comm::LaunchResult& result) {
  const bool told = result.failed && result.failed->told;
  return result.code != 0 && result.code != kUserMistake && !told && result.stops == 0;
}

// What went wrong here may have gone wrong on all workers. The one with the lowest number says it
// and ends the job; the others leave it the time for that.
void let_the_first_speak(int rank) {
  constexpr int kLongestMilliseconds = 4000, kMilliseconds = 500;
  std::this_thread::sleep_for(
      std::chrono::milliseconds(std::min(rank * kMilliseconds, kLongestMilliseconds)));
}

// All workers have thrown the same.
int end_together(comm::World& world, const comm::SharedError& error) {
  if (world.everyone().rank() == 0) {
    complain(error.what(), kUserMistake);
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(10));
  }
  world.abort(kUserMistake);
  return kUserMistake;
}

comm::GpuTransport transport_of(const std::string& engine) {
  if (engine == "mpi") return comm::GpuTransport::kMpi;
  return engine == "nccl" ? comm::GpuTransport::kNccl : comm::GpuTransport::kAuto;
}

std::string worker_prefix(int rank) { return rank == 0 ? "" : fmt::format("worker {}: ", rank); }

// The command line without the options of starting; an option of `arguments` takes the place of
// those of the same name. Behind a "--" nothing is an option.
Words worker_command(Words words, const Words& arguments) {
  remove_option(words, "--workers", Takes::kValue);
  remove_option(words, "--hosts", Takes::kValue);
  remove_option(words, "--max-restarts", Takes::kValue);
  remove_option(words, "--prefix-lines", Takes::kNothing);
  remove_option(words, "--watch", Takes::kNothing);  // this process has the live view
  remove_output_options(words);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size() && !is_option(arguments[i + 1]);
    if (is_option(arguments[i]))
      remove_option(words, arguments[i], has_value ? Takes::kValue : Takes::kNothing);
  }
  words.insert(std::ranges::find(words, "--"), arguments.begin(), arguments.end());
  return words;
}

}  // namespace

void add_worker_options(CLI::App& command, WorkerOptions& options) {
  const std::string group = "Workers";
  CLI::Option* workers =
      add_number(command, "--workers", options.workers,
                 "start this many workers, by mpirun, on this machine or on those of --hosts; "
                 "without it there are as many as mpirun or srun started")
          ->check(from_to(1, kMostWorkers))
          ->type_name("N")
          ->group(group);
  command
      .add_option("--hosts", options.hosts,
                  "with --workers: machines to start them on, by ssh: node1,node2 in equal shares, "
                  "or node1:4,node2:8")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->needs(workers)
      ->type_name("NAME,...")
      ->group(group);
  add_number(command, "--max-restarts", options.max_restarts,
             "with --workers: how often to go on from the newest checkpoint after a worker "
             "has died or did not answer [0]",
             0)
      ->needs(workers)
      ->type_name("K")
      ->group(group);
  command
      .add_flag("--prefix-lines", options.prefix_lines,
                "with --workers: \"worker 3: \" before each line of output")
      ->needs(workers)
      ->group(group);
  command
      .add_option_function<std::string>(
          "--deadline",
          [&options](const std::string& text) {
            options.deadline_seconds = config::parse_duration("--deadline", text);
            if (!(options.deadline_seconds > 0)) fail("--deadline is {}; it must be more", text);
          },
          "how long a worker waits for another before the job ends and names it; under NCCL longer "
          "than a step takes [5m]")
      ->type_name("TIME")
      ->group(group);
  command
      .add_option("--engine", options.engine,
                  "how tensors on GPUs go from worker to worker: nccl (a GPU for each worker), mpi "
                  "(through host memory; workers can share a GPU), auto: nccl where it can be")
      ->check(CLI::IsMember({"auto", "mpi", "nccl"}))
      ->capture_default_str()
      ->group(group);
}

bool must_launch(const WorkerOptions& options) {
  const int started = comm::num_started_workers();
  if (started > 1 && options.workers > 0) {
    fail(
        "--workers {}: this is one of {} workers that mpirun or srun has started. Give the number "
        "of workers to one of the two, not to both",
        options.workers, started);
  }
  return options.workers > 1 ||
         (options.workers == 1 && (options.max_restarts > 0 || !options.hosts.empty()));
}

int launch_workers(const WorkerOptions& options, const Words& extra_arguments,
                   const Words& restart_arguments) {
  Words arguments = extra_arguments;
  if (options.prefix_lines && std::ranges::count(own_command_line(), "--json") > 0)
    fail("--prefix-lines would break what --json prints: leave one of them out");
  for (int64_t restarts = 0;; ++restarts) {
    const comm::LaunchResult result = comm::run_workers(
        {static_cast<int>(options.workers), worker_command(own_command_line(), arguments),
         options.prefix_lines, options.deadline_seconds, options.hosts});
    const bool again = restarts < options.max_restarts && may_be_mended(result);
    if (again) {
      complain(fmt::format("{}; starting again ({} of {})", result.reason, restarts + 1,
                           options.max_restarts),
               result.code);
      if (!options.hosts.empty() && !result.arrived) std::this_thread::sleep_for(kForMachines);
    } else {
      return is_unexplained(result) ? complain(result.reason, result.code) : result.code;
    }
    if (restarts == 0)
      arguments.insert(arguments.end(), restart_arguments.begin(), restart_arguments.end());
  }
}

int run_as_worker(const WorkerOptions& options, const std::function<int(comm::World&)>& body) {
  comm::WorldOptions world_options;
  world_options.deadline_seconds = options.deadline_seconds;
  world_options.gpus = transport_of(options.engine);
  const std::unique_ptr<comm::World> world = comm::open_world(world_options);
  int code = 0;
  try {
    // Written now: another worker's trouble at the end might end this one first.
    code = with_output_written(body(*world));
    if (code != 0) comm::tell_launcher(comm::Note::kReturned, world->everyone().rank(), code);
    world->close();
    return code;
  } catch (const comm::SharedError& error) {
    return end_together(*world, error);
  } catch (const std::exception&) {
    const int rank = world->everyone().rank();
    let_the_first_speak(rank);
    code = complain_of_exception(worker_prefix(rank));
  }
  world->abort(code);
  return code;
}

}  // namespace ballast::cli
