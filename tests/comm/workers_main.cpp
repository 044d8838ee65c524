// SPDX-License-Identifier: Apache-2.0
// The tests of several workers: each runs all of them, in the same order. workers_test.cpp starts
// this under mpirun.  workers_tests mpi|single [gtest's options]
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <exception>
#include <memory>
#include <string_view>

#include "ballast/comm/world.h"
#include "tests/comm/workers.h"

namespace ballast::test {
namespace {

std::unique_ptr<World>& world() {
  static std::unique_ptr<World> opened;
  return opened;
}

}  // namespace

Communicator& everyone() { return world()->everyone(); }

int run(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const bool single = argc > 1 && std::string_view(argv[1]) == "single";
  // A worker that fails a test may leave the others in a collective: they give up soon.
  world() = open_world({single ? WorldKind::kSingle : WorldKind::kMpi, 60});
  const int code = RUN_ALL_TESTS();
  if (code != 0) {
    fmt::print(stderr, "worker {} failed\n", everyone().rank());
    world()->abort(code);
    return code;
  }
  fmt::print(stderr, "worker {} of {}: {} tests passed\n", everyone().rank(), everyone().size(),
             testing::UnitTest::GetInstance()->successful_test_count());
  world()->close();
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
