// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/gpu_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/comm/agreement.h"
#include "tests/support/error_of.h"

namespace ballast::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

WorkerGpu on(const std::string& host, const std::string& gpu, const std::string& trouble = "") {
  return {host + " id", host, gpu, trouble};
}

TEST(GpuTransport, AGpuForEachWorkerMeansNccl) {
  const std::vector<WorkerGpu> workers{on("a", "1"), on("a", "2"), on("b", "1")};
  EXPECT_TRUE(decide_nccl(GpuTransport::kAuto, workers));
  EXPECT_TRUE(decide_nccl(GpuTransport::kNccl, workers));
  EXPECT_FALSE(decide_nccl(GpuTransport::kMpi, workers));
}

TEST(GpuTransport, OneWorkerNeedsNoneUnlessAskedFor) {
  EXPECT_FALSE(decide_nccl(GpuTransport::kAuto, {on("a", "1")}));
  EXPECT_TRUE(decide_nccl(GpuTransport::kNccl, {on("a", "1")}));
}

// Falls back quietly, and says why where NCCL was asked for.
void expect_refused(const std::vector<WorkerGpu>& workers,
                    const testing::Matcher<std::string>& message) {
  EXPECT_FALSE(decide_nccl(GpuTransport::kAuto, workers));
  EXPECT_THAT(test::error_of([&] { decide_nccl(GpuTransport::kNccl, workers); }), message);
}

TEST(GpuTransport, WorkersWithoutAGpuAreNamed) {
  expect_refused({on("a", ""), on("a", "1"), on("b", "")},
                 HasSubstr("NCCL was asked for, but workers 0, 2 compute on the CPU"));
  expect_refused({on("a", "1"), on("a", "")}, HasSubstr("worker 1 computes on the CPU"));
}

TEST(GpuTransport, MoreWorkersThanGpusOnAMachineAreCounted) {
  expect_refused(
      {on("a", "1"), on("b", "1"), on("b", "2"), on("b", "1")},
      AllOf(HasSubstr("b has 3 workers and 2 GPUs for them"), HasSubstr("--engine mpi")));
}

TEST(GpuTransport, AMissingLibraryIsNamed) {
  expect_refused({on("a", "1"), on("b", "1", "libnccl.so.2: cannot open")},
                 HasSubstr("libnccl.so.2: cannot open on worker 1"));
}

TEST(GpuTransport, NcclForTheCpuIsRefusedBeforeTheFirstStep) {
  const auto world = open_world({.kind = WorldKind::kSingle, .gpus = GpuTransport::kNccl});
  EXPECT_THAT(test::error_of([&] { world->compute_on(at::kCPU); }),
              HasSubstr("worker 0 computes on the CPU"));
}

TEST(GpuTransport, OnTheCpuNothingChanges) {
  const auto world = open_world({.kind = WorldKind::kSingle});
  world->compute_on(at::kCPU);
  EXPECT_EQ(world->everyone().gpu_engine(), nullptr);
  EXPECT_EQ(world->transport(), "nowhere");
}

TEST(GpuTransport, GpusAreDealtOutInTurn) {
  EXPECT_EQ(gpu_of({3, 8}, 8).index(), 3);
  EXPECT_EQ(gpu_of({5, 8}, 4).index(), 1);
  EXPECT_EQ(gpu_of({3, 4}, 1).index(), 0);
}

}  // namespace
}  // namespace ballast::comm
