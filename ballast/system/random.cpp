// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "ballast/system/checksum.h"

namespace ballast {
namespace {

// The splitmix64 finalizer: every input bit changes about half of the output bits.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t random_bits(uint64_t seed, std::string_view purpose, uint64_t a, uint64_t b) {
  return mix(mix(mix(mix(seed) ^ checksum(purpose)) ^ a) ^ b);
}

RandomStream::RandomStream(uint64_t seed, std::string_view purpose, uint64_t a, uint64_t b)
    : key_(random_bits(seed, purpose, a, b)) {}

uint64_t RandomStream::bits() { return mix(key_ ^ mix(counter_++)); }

uint64_t RandomStream::below(uint64_t n) {
  // Multiply-shift with rejection of the few values that would make small results more likely.
  const uint64_t reject = (0 - n) % n;
  for (;;) {
    const unsigned __int128 product = static_cast<unsigned __int128>(bits()) * n;
    if (static_cast<uint64_t>(product) >= reject) return static_cast<uint64_t>(product >> 64);
  }
}

double RandomStream::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double RandomStream::normal() {
  const double u = 1.0 - uniform(), v = uniform();  // u in (0, 1]: its logarithm is finite
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

IndexPermutation::IndexPermutation(uint64_t size, uint64_t key)
    : size_(size), key_(key), half_bits_((std::bit_width(size > 1 ? size - 1 : 1) + 1) / 2) {}

uint64_t IndexPermutation::operator()(uint64_t index) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = index >> half_bits_, right = index & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t next = left ^ (mix(mix(key_ + round) ^ right) & mask);
      left = right;
      right = next;
    }
    index = left << half_bits_ | right;
  } while (index >= size_);  // walk the cycle until it is back inside: still a permutation
  return index;
}

}  // namespace ballast
