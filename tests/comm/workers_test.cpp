// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ballast/comm/launch.h"

namespace ballast {
namespace {

using testing::HasSubstr;

// All tests of workers_tests, on `workers` real processes with data of their own.
class WorkersOf : public testing::TestWithParam<int> {};

TEST_P(WorkersOf, PassAllTests) {
  const int workers = GetParam();
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const LaunchResult result =
      run_workers({workers, {BALLAST_BINARY_DIR "/workers_tests", "mpi", "--gtest_brief=1"}});
  const std::string output = testing::internal::GetCapturedStdout(),
                    errors = testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.code, 0) << result.reason << "\n" << output << errors;
  for (int worker = 0; worker < workers; ++worker) {
    EXPECT_THAT(errors, HasSubstr("worker " + std::to_string(worker) + " of " +
                                  std::to_string(workers) + ": 24 tests passed"));
  }
}

INSTANTIATE_TEST_SUITE_P(Mpi, WorkersOf, testing::Values(1, 2, 3, 4, 8),
                         [](const auto& info) { return std::to_string(info.param); });

// The same tests without MPI.
TEST(WorldOfOne, PassesTheTestsOfWorkers) {
  testing::internal::CaptureStdout();
  const int status = std::system(BALLAST_BINARY_DIR "/workers_tests single --gtest_brief=1 2>&1");
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0) << output;
}

}  // namespace
}  // namespace ballast
