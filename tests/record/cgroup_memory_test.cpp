// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/cgroup_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "ballast/system/file.h"
#include "tests/support/temporary_folder.h"

namespace ballast::record {
namespace {

// /proc and /sys as a kernel shows them.
struct CgroupMemory : testing::Test {
  void write(const std::string& name, const std::string& text) {
    make_folder((folder / name).parent_path());
    write_text_atomically(folder / name, text);
  }
  std::optional<uint64_t> limit() const { return cgroup_memory_limit(folder.path()); }

  test::TemporaryFolder folder;
};

TEST_F(CgroupMemory, Version2TakesTheLeastOnTheWayUp) {
  write("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  write("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  EXPECT_EQ(limit(), std::nullopt);
  write("sys/fs/cgroup/slurm/job_7/memory.max", "4096000\n");
  write("sys/fs/cgroup/slurm/memory.max", "8192000\n");
  EXPECT_EQ(limit(), 4096000U);
}

TEST_F(CgroupMemory, Version1IsFoundByItsController) {
  write("proc/self/cgroup", "9:cpu,cpuacct:/a\n5:memory:/docker/abc\n1:name=systemd:/a\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "2048000\n");
  EXPECT_EQ(limit(), 2048000U);
}

// Of the host's path it sees nothing: its own group is the root.
TEST_F(CgroupMemory, AContainerSeesItsOwnGroupAsTheRoot) {
  write("proc/self/cgroup", "5:memory:/docker/abc\n0::/docker/abc\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "3072000\n");
  EXPECT_EQ(limit(), 3072000U);
  write("sys/fs/cgroup/memory.max", "1024000\n");
  EXPECT_EQ(limit(), 1024000U);
}

TEST_F(CgroupMemory, NothingIsKnownWhereThereIsNothing) {
  EXPECT_EQ(limit(), std::nullopt);
  write("proc/self/cgroup", "\n:\nmemory\n5:memory\n");
  EXPECT_EQ(limit(), std::nullopt);
}

}  // namespace
}  // namespace ballast::record
