// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ballast/system/parallel.h"

namespace ballast::record {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Hardware, ReadsX86) {
  const CpuInfo info = parse_cpuinfo(
      "processor\t: 0\nmodel name\t: Some CPU @ 2.80GHz\nflags\t\t: fpu sse4_2 avx avx2 avx512f\n\n"
      "processor\t: 1\nmodel name\t: Another\nflags\t\t: fpu\n");
  EXPECT_EQ(info.model, "Some CPU @ 2.80GHz");
  EXPECT_THAT(info.instruction_sets, ElementsAre("sse4_2", "avx", "avx2", "avx512f"));
}

TEST(Hardware, ReadsArm) {
  const CpuInfo info = parse_cpuinfo(
      "processor\t: 0\nBogoMIPS\t: 100.00\nFeatures\t: fp asimd sve bf16\nCPU implementer\t: "
      "0x41\n");
  EXPECT_EQ(info.model, "0x41");
  EXPECT_THAT(info.instruction_sets, ElementsAre("asimd", "sve", "bf16"));
}

TEST(Hardware, SurvivesAnythingElse) {
  for (const char* text : {"", "\n", ":", "flags:", "flags", "model name\t:\n", "\n\n:::\n"}) {
    const CpuInfo info = parse_cpuinfo(text);
    EXPECT_EQ(info.model, "unknown") << text;
    EXPECT_THAT(info.instruction_sets, IsEmpty()) << text;
  }
}

TEST(Hardware, DescribesThisMachine) {
  const auto hardware = describe_hardware();
  EXPECT_EQ(hardware["cores"], num_cores());
  EXPECT_GE(hardware["cores_total"], hardware["cores"]);
  EXPECT_GT(hardware["memory_bytes"].get<uint64_t>(), uint64_t{64} << 20);
  EXPECT_LE(hardware["memory_available_bytes"], hardware["memory_bytes"]);
  for (const char* key : {"hostname", "os", "kernel", "architecture", "cpu"}) {
    EXPECT_FALSE(hardware[key].get<std::string>().empty()) << key;
  }
}

}  // namespace
}  // namespace ballast::record
