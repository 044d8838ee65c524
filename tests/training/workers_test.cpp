// SPDX-License-Identifier: Apache-2.0
#include "tests/comm/run_worker_tests.h"

namespace ballast {
namespace {

const std::string kProgram = "training_workers_tests";

class TrainingWorkersOf : public testing::TestWithParam<int> {};
TEST_P(TrainingWorkersOf, PassAllTests) {
  test::expect_all_pass(test::program_beside(kProgram), GetParam(), "mpi");
}
INSTANTIATE_TEST_SUITE_P(Mpi, TrainingWorkersOf, testing::Values(1, 2, 4, 8),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace ballast
