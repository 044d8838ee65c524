// SPDX-License-Identifier: Apache-2.0
// The tests of several workers: each runs all of them, in the same order. workers_test.cpp starts
// this under mpirun.  workers_tests [single|mpi|cuda|nccl] [gtest's options]
// cuda: tensors on a GPU that workers may share; nccl: a GPU for each, also without mpirun.
// nccl-stopped: no tests; worker 1 is stopped, and the others must find that out, in a call or,
// with nccl-stopped-replay, in a recorded one.
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <csignal>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>

#include "ballast/comm/world.h"
#include "ballast/kernels/cuda_plugin.h"
#include "ballast/kernels/gpu_graph.h"
#include "ballast/system/error.h"
#include "tests/comm/leaks_of_mpi.h"
#include "tests/comm/workers.h"

namespace ballast::test {
namespace {

struct Setting {
  std::unique_ptr<comm::World> world;
  at::Device device = at::kCPU;
  bool stay_on_gpus = false;
};

Setting& setting() {
  static Setting setting;
  return setting;
}

}  // namespace

comm::Communicator& everyone() { return setting().world->everyone(); }
at::Device device() { return setting().device; }
comm::PlaceOnMachine place_on_machine() { return setting().world->place(); }
bool stay_on_gpus() { return setting().stay_on_gpus; }

namespace {

// A worker that fails a test may leave the others in a collective: they give up soon.
comm::WorldOptions options_of(std::string_view kind) {
  comm::WorldOptions options{
      .kind = comm::WorldKind::kMpi, .deadline_seconds = 60, .gpus = comm::GpuTransport::kMpi};
  if (kind == "single") options.kind = comm::WorldKind::kSingle;
  if (kind.starts_with("nccl")) {
    options.kind = comm::WorldKind::kAuto;
    options.gpus = comm::GpuTransport::kNccl;
  }
  if (kind.starts_with("nccl-stopped")) options.deadline_seconds = 4;
  return options;
}

// Returns the code of a job that has ended as it should.
int lose_a_worker(std::string_view kind) {
  try {
    comm::Communicator& all = everyone();
    const at::Tensor x = at::ones({all.size() * 4}, device()), out = at::ones_like(x);
    const comm::Label label{"experts", 6};
    std::function<void()> exchange = [&] { all.all_to_all(out, x, label); };
    std::unique_ptr<kernels::GpuGraph> graph;
    if (kind == "nccl-stopped-replay") {
      exchange();
      graph = kernels::make_gpu_graph(nullptr);
      all.record([&] { graph->record(exchange); }, label);
      exchange = [&] { all.replay([&] { graph->replay(); }, label); };
      exchange();
      (void)out.cpu();  // a worker that is stopped does not bring these to an end
    }
    all.barrier({"test"});
    if (all.rank() == 1) ::raise(SIGSTOP);
    exchange();
    (void)out.cpu();  // returns, with wrong results
    all.barrier({"after it"});
    fmt::print("worker {} went on\n", all.rank());
    return 1;
  } catch (const comm::WorkersLost& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  setting().world->abort(75);
  return 75;
}

void choose_gpu() {
  const kernels::CudaPlugin plugin = kernels::load_cuda_plugin();
  if (!plugin.loaded) fail("{}", plugin.reason);
  const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
  if (gpus.deviceCount() == 0) fail("there is no GPU");
  setting().device = comm::gpu_of(setting().world->place(), gpus.deviceCount());
  gpus.setDevice(setting().device);
  gpus.exchangeStream(gpus.getStreamFromGlobalPool(setting().device));  // one that can be recorded
}

}  // namespace

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string_view kind = argc > 1 ? argv[1] : "single";
  auto& world = setting().world;
  setting().stay_on_gpus = kind == "single" || kind.starts_with("nccl");
  world = comm::open_world(options_of(kind));
  if (kind == "cuda" || kind.starts_with("nccl")) choose_gpu();
  world->compute_on(device());
  if (everyone().rank() == 0) fmt::print(stderr, "transport: {}\n", world->transport());
  if (kind.starts_with("nccl-stopped")) return lose_a_worker(kind);
  const int code = RUN_ALL_TESTS();
  if (code != 0) {
    fmt::print(stderr, "worker {} failed\n", everyone().rank());
    world->abort(code);
    return code;
  }
  fmt::print(stderr, "worker {} of {}: {} tests passed\n", everyone().rank(), everyone().size(),
             testing::UnitTest::GetInstance()->successful_test_count());
  world->close();
  world.reset();  // CUDA ends before what is static does
  return 0;
}

}  // namespace ballast::test

int main(int argc, char** argv) {
  try {
    return ballast::test::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "workers_tests: {}\n", error.what());
    return 1;
  }
}
