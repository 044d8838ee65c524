// SPDX-License-Identifier: Apache-2.0
// A job in which one worker misbehaves, ended as a program should end it. launch_test.cpp starts
// it:  worker_scenario NAME CULPRIT DEADLINE
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "ballast/comm/agreement.h"
#include "ballast/comm/worker_grid.h"
#include "ballast/comm/world.h"
#include "tests/comm/leaks_of_mpi.h"

namespace ballast::test {
namespace {

volatile std::sig_atomic_t asked_to_stop = 0;

void wait_for_stop_request() {
  std::signal(SIGUSR1, [](int) { asked_to_stop = 1; });
  fmt::print(stderr, "ready\n");
  while (asked_to_stop == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

// What the culprit does instead of its second exchange.
void misbehave(const std::string& name, comm::Communicator& all, const at::Tensor& x) {
  if (name == "stopped") ::raise(SIGSTOP);
  if (name == "killed") ::raise(SIGKILL);
  if (name == "crashed") ::raise(SIGFPE);
  if (name == "late") std::this_thread::sleep_for(std::chrono::hours(1));
  if (name == "left") ::_exit(0);
  if (name == "mpirun killed") ::kill(::getppid(), SIGKILL);
  if (name == "mpirun stopped") ::kill(::getppid(), SIGSTOP);
  if (name == "code") ::_exit(7);
  if (name == "error") fail("worker {} cannot read its data", all.rank());
  if (name == "elsewhere") all.all_gather(at::ones({all.size() * 5}), at::ones({5}), {"wrong"});
  // Begins what the others begin, and then does not wait for it.
  if (name == "busy") {
    const comm::Pending begun = all.begin_all_to_all(at::ones({all.size() * 4}), x, {"experts", 6});
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

// A long exchange is begun, and then nobody calls MPI: it is done all the same.
void compute_meanwhile(comm::Communicator& all) {
  constexpr int64_t kNumbers = 1 << 18;  // for each: a message of 1 MiB, which waits for an answer
  const at::Tensor x = at::ones({all.size() * kNumbers}), out = at::zeros({all.size() * kNumbers});
  comm::Pending begun = all.begin_all_to_all(out, x, {"experts", 6});
  const auto arrived = [&](int64_t from) {
    return const_cast<const volatile float*>(
        out.const_data_ptr<float>())[(from + 1) * kNumbers - 1];
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (int64_t from = 0; from < all.size(); ++from) {
    while (arrived(from) == 0) {
      if (std::chrono::steady_clock::now() > deadline)
        fail("worker {}: nothing of worker {} came while it computed", all.rank(), from);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  begun.wait();
}

void run(const std::string& name, int culprit, comm::Communicator& all) {
  if (name == "computes") compute_meanwhile(all);
  const at::Tensor x = at::ones({all.size() * 4}), out = at::ones({all.size() * 4});
  all.all_reduce(x, comm::Reduction::kSum, {"gradients", 2});
  if (name == "disagree") {
    const std::string width = all.rank() == culprit ? "512" : "256";
    comm::check_agreement(all, std::vector<comm::Fact>{{"model.width", width}}, {"start"});
  }
  if (name == "stop request") wait_for_stop_request();
  if (all.rank() == culprit) misbehave(name, all, x);
  all.all_to_all(out, x, {"experts", 6});
  fmt::print("worker {} of {} is well\n", all.rank(), all.size());
}

// Two replicas of two shards; the culprit is of the second and stops before a call of its shards,
// for which its partner waits: the first replica's workers wait for that one in turn.
void run_divided(int culprit, comm::Communicator& all) {
  const comm::WorkerGrid grid(all, 2);
  const at::Tensor x = at::ones({4});
  all.barrier({"start"});
  if (all.rank() == culprit) ::raise(SIGSTOP);
  grid.shards().all_reduce(x, comm::Reduction::kSum, {"attention", 1});
  grid.replicas().all_reduce(x, comm::Reduction::kSum, {"gradients", 2});
}

// In a divided job worker 0 gives up first, which is far from the culprit, and alone: the end of
// the job by one worker wakes the culprit, which would then answer the other.
double patience(const std::string& name, double deadline) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return name == "stopped shard" && rank != nullptr && std::atoi(rank) >= 1 ? 100 : deadline;
}

bool is_culprit(int culprit) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return culprit < 0 || (rank != nullptr && std::atoi(rank) == culprit);
}

int main_of(const std::string& name, int culprit, double deadline) {
  if (name == "stopped at the start" && is_culprit(culprit)) ::raise(SIGSTOP);
  const auto world = comm::open_world({comm::WorldKind::kAuto, patience(name, deadline)});
  try {
    if (name == "stopped shard") {
      run_divided(culprit, world->everyone());
    } else {
      run(name, culprit, world->everyone());
    }
    world->close();
    if (name == "stopped at the end" && is_culprit(culprit)) ::raise(SIGSTOP);
    return 0;
  } catch (const comm::SharedError& error) {
    if (world->everyone().rank() == 0) fmt::print(stderr, "ballast: {}\n", error.what());
  } catch (const UserError& error) {
    fmt::print(stderr, "ballast: {}\n", error.what());
  }
  world->abort(2);
  return 2;
}

}  // namespace
}  // namespace ballast::test

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  try {
    return ballast::test::main_of(argv[1], std::atoi(argv[2]), std::atof(argv[3]));
  } catch (const std::exception& error) {
    fmt::print(stderr, "ballast: {}\n", error.what());
    return 2;
  }
}
