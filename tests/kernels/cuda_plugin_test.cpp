// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/cuda_plugin.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "ballast/kernels/cuda_driver.h"

namespace ballast::kernels {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// An empty folder of the running test's own.
fs::path fresh_folder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const fs::path folder = fs::path(testing::TempDir()) / (std::string("ballast_") + test->name());
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

TEST(CudaPlugin, IsLookedForBesideTheKernelLibrary) {
  const CudaPlugin plugin = load_cuda_plugin();
  EXPECT_EQ(plugin.path, fs::canonical(BALLAST_BINARY_DIR) / "libballast_cuda.so");
  EXPECT_EQ(plugin.loaded, plugin.reason.empty());
}

TEST(CudaPlugin, ThatIsMissingIsNamed) {
  const fs::path folder = fresh_folder();
  const CudaPlugin plugin = load_cuda_plugin(folder);
  EXPECT_FALSE(plugin.loaded);
  EXPECT_THAT(plugin.reason, HasSubstr((folder / "libballast_cuda.so").string()));
}

TEST(CudaPlugin, ThatCannotBeLoadedSaysWhy) {
  const fs::path folder = fresh_folder();
  std::ofstream(folder / "libballast_cuda.so")
      << "this is no library at all, but some text of the length of an ELF header or more";
  const CudaPlugin plugin = load_cuda_plugin(folder);
  EXPECT_FALSE(plugin.loaded);
  EXPECT_THAT(plugin.reason, HasSubstr((folder / "libballast_cuda.so").string()));
}

TEST(CudaPlugin, CanBeLoadedTwice) {
  // Any library will do: here the C library, under the plugin's name.
  Dl_info library{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&std::fopen), &library), 0);
  const fs::path folder = fresh_folder();
  fs::create_symlink(library.dli_fname, folder / "libballast_cuda.so");
  for (int i = 0; i < 2; ++i) {
    const CudaPlugin plugin = load_cuda_plugin(folder);
    EXPECT_TRUE(plugin.loaded) << plugin.reason;
    EXPECT_EQ(plugin.reason, "");
  }
}

TEST(CudaDriver, NamesItsDevicesOrTheReasonForHavingNone) {
  const CudaDriver driver = query_cuda_driver();
  EXPECT_EQ(driver.devices.empty(), !driver.reason.empty());
  for (const CudaDevice& device : driver.devices) {
    EXPECT_NE(device.name, "");
    EXPECT_GT(device.memory_bytes, 0U);
  }
}

// The whole way on a machine with a GPU: driver and plugin agree that it can be used.
TEST(PluginCuda, LoadsWhereThereIsAGpu) {
  const CudaDriver driver = query_cuda_driver();
  EXPECT_FALSE(driver.devices.empty()) << driver.reason;
  const CudaPlugin plugin = load_cuda_plugin();
  EXPECT_TRUE(plugin.loaded) << plugin.reason;
}

}  // namespace
}  // namespace ballast::kernels
