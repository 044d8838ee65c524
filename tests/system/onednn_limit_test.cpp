// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/onednn_limit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/support/child_process.h"

namespace ballast {
namespace {

constexpr uint32_t kAmxBf16 = 1U << 22;
constexpr uint32_t kAmxTile = 1U << 24;
constexpr uint32_t kAmxInt8 = 1U << 25;

// A Sapphire Rapids: one palette, of 8 tiles of 1 KiB, in 16 rows of 64 bytes.
AmxCpuid whole() {
  return {.highest_leaf = 0x20,
          .features = kAmxBf16 | kAmxTile | kAmxInt8,
          .palettes = {1, 0, 0, 0},
          .tiles = {0x04002000, 0x00080040, 16, 0}};
}

AmxCpuid without_tile_leaf() {
  AmxCpuid cpuid = whole();
  cpuid.highest_leaf = 0x1C;
  return cpuid;
}

AmxCpuid without_palettes() {
  AmxCpuid cpuid = whole();
  cpuid.palettes = {};
  cpuid.tiles = {};
  return cpuid;
}

AmxCpuid without_tile_sizes() {
  AmxCpuid cpuid = whole();
  cpuid.tiles = {};
  return cpuid;
}

TEST(OnednnLimit, AmxWithoutSizesOfTilesIsOfferedInPart) {
  EXPECT_TRUE(offers_amx_in_part(without_tile_leaf()));
  EXPECT_TRUE(offers_amx_in_part(without_palettes()));
  EXPECT_TRUE(offers_amx_in_part(without_tile_sizes()));
}

TEST(OnednnLimit, WholeAmxAndNoneAreNotInPart) {
  EXPECT_FALSE(offers_amx_in_part(whole()));
  EXPECT_FALSE(offers_amx_in_part({}));
  EXPECT_FALSE(offers_amx_in_part({.highest_leaf = 0x1C, .features = ~kAmxTile}));
  EXPECT_FALSE(offers_amx_in_part({.highest_leaf = 0x20, .features = ~kAmxTile}));
}

// What the environment allows oneDNN after limit_onednn, in a child with these variables before.
void expect_limit(const AmxCpuid& cpuid, const char* onednn, const char* dnnl, const char* limit) {
  const int code = test::run_in_child([&] {
    const auto set = [](const char* name, const char* value) {
      return value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
    };
    set("ONEDNN_MAX_CPU_ISA", onednn);
    set("DNNL_MAX_CPU_ISA", dnnl);
    limit_onednn(cpuid);
    return onednn_limit() == limit ? 0 : 1;
  });
  EXPECT_EQ(code, 0) << "not " << limit;
}

TEST(OnednnLimit, IsSetWhereAmxIsOfferedInPartAndNowhereElse) {
  expect_limit(without_tile_leaf(), nullptr, nullptr, "AVX512_CORE_BF16");
  expect_limit(without_palettes(), "", "", "AVX512_CORE_BF16");
  expect_limit(whole(), nullptr, nullptr, "");
  expect_limit({}, nullptr, nullptr, "");
}

TEST(OnednnLimit, OfTheUserStays) {
  expect_limit(without_tile_leaf(), "AVX2", nullptr, "AVX2");
  expect_limit(without_tile_leaf(), nullptr, "AVX2", "AVX2");
  expect_limit(without_tile_leaf(), "DEFAULT", "AVX2", "DEFAULT");
  expect_limit(whole(), "AVX2", nullptr, "AVX2");
}

TEST(OnednnLimit, OnednnsOwnNameComesFirstAsInOnednn) {
  expect_limit(whole(), "AVX2", "SSE41", "AVX2");
  expect_limit(whole(), "", "SSE41", "SSE41");
}

// The value of the first line "name : value" in /proc/cpuinfo; empty where there is none.
std::string cpuinfo(const std::string& name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with(name) && colon != line.npos) return line.substr(colon + 1) + " ";
  }
  return "";
}

TEST(OnednnLimit, CpuidIsReadAsTheKernelReadsIt) {
  const AmxCpuid cpuid = read_amx_cpuid();
  const std::string level = cpuinfo("cpuid level");
  EXPECT_EQ(cpuid.highest_leaf, level.empty() ? 0U : std::stoul(level));
  // The kernel may hide what it does not know, and shows nothing that is not there.
  if (cpuinfo("flags").find(" amx_tile ") != std::string::npos) {
    EXPECT_NE(cpuid.features & kAmxTile, 0U);
  }
  if (cpuid.highest_leaf < 0x1D) {
    EXPECT_EQ(cpuid.palettes, (std::array<uint32_t, 4>{}));
  }
}

}  // namespace
}  // namespace ballast
