// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "ballast/comm/launch.h"
#include "tests/comm/run_worker_tests.h"

namespace ballast::comm {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

using test::expect_all_pass;

std::string program() { return test::program_beside("workers_tests"); }

void expect_all_pass(int workers, const std::string& kind) {
  test::expect_all_pass(workers, std::vector<std::string>{program(), kind, "--gtest_brief=1"});
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

TEST(NcclCuda, AWorldOfOnePassesTheTestsOfWorkers) {
  testing::internal::CaptureStdout();
  const int status = std::system((program() + " nccl --gtest_brief=1 2>&1").c_str());
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, ContainsRegex("transport: NCCL [0-9]+"));
}

std::vector<std::string> apart(const std::string& arguments) {
  return test::apart(program(), arguments);
}

class ApartNcclCuda : public testing::TestWithParam<int> {};
TEST_P(ApartNcclCuda, PassAllTests) {
  test::expect_all_pass(GetParam(), apart("nccl --gtest_brief=1"));
}
INSTANTIATE_TEST_SUITE_P(Hosts, ApartNcclCuda, testing::Values(2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(NcclCuda, AStoppedWorkerIsNamedWithCallLayerAndSizes) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const LaunchResult result = run_workers({3, apart("nccl-stopped")});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "") << "nobody goes on with wrong results";
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.code, 75) << errors;
  EXPECT_THAT(errors, HasSubstr("worker 1 (on worker1) does not answer"));
  EXPECT_THAT(errors, HasSubstr("all_to_all (experts, layer 6) of float32 [12] on cuda:0"));
  EXPECT_THAT(errors, Not(HasSubstr("worker 2 began this call"))) << "it waits for the same";
}

TEST(NcclCuda, AStoppedWorkerIsNamedInAReplayedGraph) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  const LaunchResult result = run_workers({3, apart("nccl-stopped-replay")});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "") << "nobody goes on with wrong results";
  const std::string errors = testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.code, 75) << errors;
  EXPECT_THAT(errors, HasSubstr("worker 1 (on worker1) does not answer"));
  EXPECT_THAT(errors, HasSubstr("in replay (experts, layer 6) (call "));
}

// The same tests without MPI.
TEST(WorldOfOne, PassesTheTestsOfWorkers) {
  testing::internal::CaptureStdout();
  const int status = std::system((program() + " single --gtest_brief=1 2>&1").c_str());
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0) << output;
}

}  // namespace
}  // namespace ballast::comm
