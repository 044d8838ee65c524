// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// constexpr, so that kernels on a GPU compute the same.
namespace ballast {

// The splitmix64 finalizer: every input bit changes about half of the output bits.
constexpr uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// A pseudorandom permutation of [0, size) computed point by point (a Feistel network with cycle
// walking), so a shuffled epoch needs no table in memory.
class IndexPermutation {
 public:
  constexpr IndexPermutation(uint64_t size, uint64_t key) : size_(size) {
    for (uint64_t round = 0; round < kRounds; ++round) keys_[round] = mix_bits(key + round);
    while (half_bits_ < 32 && size > 1 && (size - 1) >> (2 * half_bits_) != 0) ++half_bits_;
  }

  constexpr uint64_t operator()(uint64_t index) const {  // REQUIRES: index < size
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    do {
      uint64_t left = index >> half_bits_, right = index & mask;
      for (const uint64_t key : keys_) {
        const uint64_t next = left ^ (mix_bits(key ^ right) & mask);
        left = right;
        right = next;
      }
      index = left << half_bits_ | right;
    } while (index >= size_);  // walk the cycle until it is back inside: still a permutation
    return index;
  }

 private:
  static constexpr uint64_t kRounds = 6;
  uint64_t size_;
  uint64_t keys_[kRounds] = {};  // of the rounds
  int half_bits_ = 1;
};

}  // namespace ballast
