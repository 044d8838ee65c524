// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define BALLAST_ON_BOTH __host__ __device__
#else
#define BALLAST_ON_BOTH
#endif

namespace ballast::kernels {

// What the devices share of dropout: random bits of a key and an index, without a state. Two rounds
// of a multiply-and-shift mixer; neighbours differ in about half of their bits.
BALLAST_ON_BOTH inline uint64_t mixed_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

struct DropoutMask {
  uint64_t key;
  uint64_t threshold;  // numbers whose 32 bits are below it are left out

  BALLAST_ON_BOTH static DropoutMask of(uint64_t key, int64_t place, double part) {
    return {mixed_bits(key + 0x9e3779b97f4a7c15ULL * static_cast<uint64_t>(place + 1)),
            static_cast<uint64_t>(part * 4294967296.0)};
  }
  BALLAST_ON_BOTH bool keeps(int64_t index) const {
    return (mixed_bits(key + 0x9e3779b97f4a7c15ULL * static_cast<uint64_t>(index)) >> 32) >=
           threshold;
  }
};

}  // namespace ballast::kernels
