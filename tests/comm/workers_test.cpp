// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "ballast/comm/launch.h"

namespace ballast {
namespace {

using testing::ContainsRegex;

// Beside this program: the build folder, or that of a dist.
std::string program() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "workers_tests";
}

// All tests of workers_tests, on `workers` real processes with data of their own.
void expect_all_pass(int workers, const std::string& kind) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const LaunchResult result = run_workers({workers, {program(), kind, "--gtest_brief=1"}});
  const std::string output = testing::internal::GetCapturedStdout(),
                    errors = testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.code, 0) << result.reason << "\n" << output << errors;
  for (int worker = 0; worker < workers; ++worker) {
    EXPECT_THAT(errors, ContainsRegex(fmt::format("worker {} of {}: [0-9][0-9]+ tests passed",
                                                  worker, workers)));
  }
}

class WorkersOf : public testing::TestWithParam<int> {};
TEST_P(WorkersOf, PassAllTests) { expect_all_pass(GetParam(), "mpi"); }
INSTANTIATE_TEST_SUITE_P(Mpi, WorkersOf, testing::Values(1, 2, 3, 4, 8),
                         [](const auto& info) { return std::to_string(info.param); });

// All of them on one GPU: tensors go through the host.
class WorkersCuda : public testing::TestWithParam<int> {};
TEST_P(WorkersCuda, PassAllTests) { expect_all_pass(GetParam(), "cuda"); }
INSTANTIATE_TEST_SUITE_P(Mpi, WorkersCuda, testing::Values(1, 2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

// The same tests without MPI.
TEST(WorldOfOne, PassesTheTestsOfWorkers) {
  testing::internal::CaptureStdout();
  const int status = std::system((program() + " single --gtest_brief=1 2>&1").c_str());
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0) << output;
}

}  // namespace
}  // namespace ballast
