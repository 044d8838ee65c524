// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "ballast/comm/mpi_plugin.h"
#include "ballast/comm/world.h"
#include "ballast/system/file.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::comm {
namespace {

using testing::HasSubstr;

TEST(MpiPlugin, LiesBesideTheLibraryAndLoads) {
  EXPECT_EQ(mpi_plugin_path(), fs::canonical(BALLAST_BINARY_DIR) / "libballast_mpi.so");
  const MpiPlugin plugin = load_mpi_plugin();
  EXPECT_NE(plugin.open, nullptr) << plugin.reason;
  EXPECT_EQ(plugin.reason, "");
}

TEST(MpiPlugin, OneThatIsNotThereOrBrokenSaysWhy) {
  const test::TemporaryFolder folder;
  const MpiPlugin missing = load_mpi_plugin(folder / "libballast_mpi.so");
  EXPECT_EQ(missing.open, nullptr);
  EXPECT_THAT(missing.reason, HasSubstr("there is no " + folder.path().string()));
  write_text_atomically(folder / "libballast_mpi.so", "not a library");
  const MpiPlugin broken = load_mpi_plugin(folder / "libballast_mpi.so");
  EXPECT_EQ(broken.open, nullptr);
  EXPECT_THAT(broken.reason, HasSubstr("libballast_mpi.so"));
}

TEST(World, WithoutMpirunIsAWorldOfOne) {
  EXPECT_EQ(num_started_workers(), 0);
  const auto world = open_world({});
  EXPECT_EQ(world->everyone().size(), 1);
  EXPECT_EQ(world->everyone().rank(), 0);
  EXPECT_EQ(world->place().workers, 1);
  world->close();
}

TEST(World, ADeadlineThatIsNoneIsRefused) {
  for (const double seconds : {0.0, -1.0, double{NAN}, double{INFINITY}}) {
    EXPECT_THAT(test::error_of([&] {
                  open_world({WorldKind::kSingle, seconds});
                }),
                HasSubstr("deadline"));
  }
}

TEST(World, NumbersOfWorkersInTheEnvironmentAreReadWithCare) {
  for (const char* text : {"", "-3", "two", "4x", "99999999999"}) {
    ::setenv("PMI_SIZE", text, 1);
    EXPECT_EQ(num_started_workers(), 0) << text;
  }
  ::setenv("PMI_SIZE", "6", 1);
  EXPECT_EQ(num_started_workers(), 6);
  ::unsetenv("PMI_SIZE");
}

}  // namespace
}  // namespace ballast::comm
