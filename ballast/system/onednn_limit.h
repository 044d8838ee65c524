// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace ballast {

// What CPUID says of AMX, Intel's tiles. The arrays are eax, ebx, ecx, edx.
struct AmxCpuid {
  uint32_t highest_leaf = 0;
  uint32_t features = 0;                  // leaf 7, edx: bit 24 is amx_tile
  std::array<uint32_t, 4> palettes = {};  // leaf 1Dh, 0: eax is the highest palette of tile sizes
  std::array<uint32_t, 4> tiles = {};     // leaf 1Dh, 1: the sizes of the first palette
};

// Of this processor; zeros where it is not an x86.
AmxCpuid read_amx_cpuid();

// True on some virtual machines: they offer the instructions and do not tell the sizes of tiles.
// oneDNN, in libtorch, then runs bf16 products with tiles of no size, and the first one is SIGILL.
bool offers_amx_in_part(const AmxCpuid& cpuid);

// What the environment allows oneDNN at most, as oneDNN reads it: ONEDNN_MAX_CPU_ISA, else
// DNNL_MAX_CPU_ISA. Empty: all that the processor has.
std::string onednn_limit();

// Where AMX is offered in part, oneDNN is told to do without: ONEDNN_MAX_CPU_ISA, unless the user
// has set a limit. oneDNN reads it at its first use. Every binary with libtorch calls this with its
// own CPUID before main() (cmake/Room.cmake), and nothing else calls it but tests.
void limit_onednn(const AmxCpuid& cpuid);

}  // namespace ballast
