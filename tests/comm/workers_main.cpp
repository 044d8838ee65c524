// SPDX-License-Identifier: Apache-2.0
// The tests of several workers: each runs all of them, in the same order. workers_test.cpp starts
// this under mpirun.  workers_tests [single|mpi|cuda] [gtest's options]
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <string_view>

#include "ballast/comm/world.h"
#include "ballast/kernels/cuda_plugin.h"
#include "ballast/system/error.h"
#include "tests/comm/leaks_of_mpi.h"
#include "tests/comm/workers.h"

namespace ballast::test {
namespace {

struct Setting {
  std::unique_ptr<World> world;
  at::Device device = at::kCPU;
};

Setting& setting() {
  static Setting setting;
  return setting;
}

}  // namespace

Communicator& everyone() { return setting().world->everyone(); }
at::Device device() { return setting().device; }

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const std::string_view kind = argc > 1 ? argv[1] : "single";
  if (kind == "cuda") {
    const CudaPlugin plugin = load_cuda_plugin();
    if (!plugin.loaded) fail("{}", plugin.reason);
    setting().device = at::Device(at::kCUDA, 0);
  }
  // A worker that fails a test may leave the others in a collective: they give up soon.
  auto& world = setting().world;
  world = open_world({kind == "single" ? WorldKind::kSingle : WorldKind::kMpi, 60});
  const int code = RUN_ALL_TESTS();
  if (code != 0) {
    fmt::print(stderr, "worker {} failed\n", everyone().rank());
    world->abort(code);
    return code;
  }
  fmt::print(stderr, "worker {} of {}: {} tests passed\n", everyone().rank(), everyone().size(),
             testing::UnitTest::GetInstance()->successful_test_count());
  world->close();
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
