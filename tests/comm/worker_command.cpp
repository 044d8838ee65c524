// SPDX-License-Identifier: Apache-2.0
// A command as cli/train.cpp is one, in which a worker can get into trouble. command_test.cpp runs
// it:  worker_command [--trouble NAME] [--culprit WORKER] [--resume never|auto] [options of
// workers]
#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ballast/comm/agreement.h"
#include "ballast/system/stop_signal.h"
#include "cli/complaint.h"
#include "cli/workers.h"
#include "tests/comm/leaks_of_mpi.h"

namespace ballast::cli {
namespace {

struct Options {
  WorkerOptions workers;
  std::string trouble = "none", resume = "never", run;
  int culprit = 0;
  std::vector<std::string> words;
};

void wait_until_stopped() {
  const StopSignal signal;
  fmt::print(stderr, "ready\n");
  while (!signal.requested()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

void get_into_trouble(const std::string& name, int rank) {
  if (name == "killed") ::raise(SIGKILL);
  if (name == "stopped") ::raise(SIGSTOP);
  if (name == "mistake") fail("the data of worker {} is not there", rank);
  if (name == "fault") throw std::logic_error("this cannot be");
}

int work(const Options& options, comm::World& world) {
  comm::Communicator& all = world.everyone();
  world.compute_on(at::kCPU);
  const at::Tensor x = at::ones({3});
  all.all_reduce(x, comm::Reduction::kSum, {"start"});
  if (all.rank() == 0) fmt::print(stderr, "{} workers, resume {}\n", all.size(), options.resume);
  all.barrier({"told"});  // or a worker's end could come before these words
  if (options.trouble == "disagreement") {
    const std::string fact = all.rank() == options.culprit ? "odd" : "even";
    comm::check_agreement(all, std::vector<comm::Fact>{{"parity", fact}}, {"start"});
  }
  if (options.trouble == "mistake of all") fail("the data is not there");
  if (options.trouble == "stop") wait_until_stopped();
  if (options.trouble == "deaf") std::this_thread::sleep_for(std::chrono::hours(1));
  // What has gone on from a checkpoint goes well, unless the trouble is for ever.
  const bool again = options.trouble.ends_with(" always");
  if (all.rank() == options.culprit && (again || options.resume == "never"))
    get_into_trouble(options.trouble.substr(0, options.trouble.find(' ')), all.rank());
  all.all_reduce(x, comm::Reduction::kSum, {"gradients", 2});
  if (all.rank() == 0)
    fmt::print("run \"{}\", words [{}], sum {}\n", options.run, fmt::join(options.words, "; "),
               x[0].item<float>());
  return options.trouble == "code" ? 3 : 0;
}

int main_of(int argc, char** argv) {
  CLI::App app("a command with workers");
  Options options;
  app.add_option("--trouble", options.trouble);
  app.add_option("--culprit", options.culprit);
  app.add_option("--resume", options.resume);
  app.add_option("--run", options.run);
  app.add_option("WORDS", options.words);
  add_worker_options(app, options.workers);
  CLI11_PARSE(app, argc, argv);
  if (must_launch(options.workers)) {
    const std::string run = options.run.empty() ? "chosen by the launcher" : options.run;
    return launch_workers(options.workers, {"--run", run}, {"--resume", "auto"});
  }
  return run_as_worker(options.workers, [&](comm::World& world) { return work(options, world); });
}

}  // namespace
}  // namespace ballast::cli

int main(int argc, char** argv) {
  try {
    return ballast::cli::main_of(argc, argv);
  } catch (const std::exception&) {
    return ballast::cli::complain_of_exception();
  }
}
