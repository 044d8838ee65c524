// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/run_worker_tests.h"

namespace ballast::training {
namespace {

class TrainingWorkersOf : public testing::TestWithParam<int> {};
TEST_P(TrainingWorkersOf, PassAllTests) {
  test::expect_all_pass(GetParam(),
                        {test::program_beside("training_workers_tests"), "mpi", "--gtest_brief=1"});
}
// A suite each, since CTest runs suites side by side.
INSTANTIATE_TEST_SUITE_P(Mpi1, TrainingWorkersOf, testing::Values(1),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Mpi2, TrainingWorkersOf, testing::Values(2),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Mpi4, TrainingWorkersOf, testing::Values(4),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Mpi8, TrainingWorkersOf, testing::Values(8),
                         testing::PrintToStringParamName());

// All of them on one GPU: tensors go through the host.
class ModelParallelCuda : public testing::TestWithParam<int> {};
TEST_P(ModelParallelCuda, PassesTheTestsOfDividedModels) {
  test::expect_all_pass(GetParam(), {test::program_beside("training_workers_tests"), "cuda",
                                     "--gtest_brief=1", "--gtest_filter=ModelParallel.*"});
}
INSTANTIATE_TEST_SUITE_P(Mpi, ModelParallelCuda, testing::Values(2),
                         [](const auto& info) { return std::to_string(info.param); });

class DividedStateCuda : public testing::TestWithParam<int> {};
TEST_P(DividedStateCuda, PassesTheTestsOfDividedState) {
  test::expect_all_pass(GetParam(),
                        {test::program_beside("training_workers_tests"), "cuda", "--gtest_brief=1",
                         "--gtest_filter=DividedState.*"},
                        7);
}
INSTANTIATE_TEST_SUITE_P(Mpi, DividedStateCuda, testing::Values(2),
                         [](const auto& info) { return std::to_string(info.param); });

// One GPU for all of them, by NCCL.
class GraphsNcclCuda : public testing::TestWithParam<int> {};
TEST_P(GraphsNcclCuda, PassTheTestsOfRecordedSteps) {
  test::expect_all_pass(
      GetParam(),
      test::apart(
          test::program_beside("training_workers_tests"),
          "nccl --gtest_brief=1 --gtest_filter=StepGraphsOfWorkers.*:ModelParallel.ADense*"),
      10);
}
INSTANTIATE_TEST_SUITE_P(Hosts, GraphsNcclCuda, testing::Values(2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

// As above. Recorded steps in chunks are among those.
constexpr const char* kOfChunks =
    "--gtest_brief=1 --gtest_filter=LayerOfWorkers.InChunks*:LayerOfWorkers.SendsEachChunk*";

class ChunksNcclCuda : public testing::TestWithParam<int> {};
TEST_P(ChunksNcclCuda, PassTheTestsOfLayersInChunks) {
  test::expect_all_pass(
      GetParam(),
      test::apart(test::program_beside("training_workers_tests"), std::string("nccl ") + kOfChunks),
      2);
}
INSTANTIATE_TEST_SUITE_P(Hosts, ChunksNcclCuda, testing::Values(2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace ballast::training
