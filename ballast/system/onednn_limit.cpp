// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/onednn_limit.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ballast {
namespace {

constexpr uint32_t kTileLeaf = 0x1D;
constexpr uint32_t kAmxTile = 1U << 24;
constexpr const char* kLimitWithoutAmx = "AVX512_CORE_BF16";

}  // namespace

AmxCpuid read_amx_cpuid() {
  AmxCpuid cpuid;
#if defined(__x86_64__)
  const auto read = [](uint32_t leaf, uint32_t subleaf) {
    std::array<uint32_t, 4> r{};
    __cpuid_count(leaf, subleaf, r[0], r[1], r[2], r[3]);
    return r;
  };
  cpuid.highest_leaf = read(0, 0)[0];
  if (cpuid.highest_leaf >= 7) cpuid.features = read(7, 0)[3];
  // Beyond the highest leaf, processors answer with what the highest one holds.
  if (cpuid.highest_leaf >= kTileLeaf) {
    cpuid.palettes = read(kTileLeaf, 0);
    cpuid.tiles = read(kTileLeaf, 1);
  }
#endif
  return cpuid;
}

bool offers_amx_in_part(const AmxCpuid& cpuid) {
  if ((cpuid.features & kAmxTile) == 0) return false;
  if (cpuid.highest_leaf < kTileLeaf) return true;
  return cpuid.palettes[0] == 0 || cpuid.tiles == std::array<uint32_t, 4>{};
}

std::string onednn_limit() {
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

void limit_onednn(const AmxCpuid& cpuid) {
  if (!offers_amx_in_part(cpuid) || !onednn_limit().empty()) return;
  ::setenv("ONEDNN_MAX_CPU_ISA", kLimitWithoutAmx, 1);
}

}  // namespace ballast

// Before main(), and before any thread that could read the environment meanwhile. The linker keeps
// it by this name in every binary with libtorch.
extern "C" __attribute__((constructor)) void ballast_limit_onednn() {
  ballast::limit_onednn(ballast::read_amx_cpuid());
}
