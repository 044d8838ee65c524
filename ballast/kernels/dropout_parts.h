// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/system/index_permutation.h"

// constexpr, so that kernels on a GPU compute the same.
namespace ballast::kernels {

// Which numbers are left out: random bits of a key and an index, without a state.
struct DropoutMask {
  uint64_t key;
  uint64_t threshold;  // numbers whose 32 bits are below it are left out

  static constexpr DropoutMask of(uint64_t key, int64_t place, double part) {
    return {mix_bits(key ^ mix_bits(static_cast<uint64_t>(place))),
            static_cast<uint64_t>(part * 4294967296.0)};
  }
  constexpr bool keeps(int64_t index) const {
    return (mix_bits(key ^ mix_bits(static_cast<uint64_t>(index))) >> 32) >= threshold;
  }
};

}  // namespace ballast::kernels
