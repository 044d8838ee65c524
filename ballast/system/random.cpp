// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/random.h"

#include <cmath>
#include <numbers>

#include "ballast/system/checksum.h"
#include "ballast/system/index_permutation.h"

namespace ballast {

uint64_t random_bits(uint64_t seed, std::string_view purpose, uint64_t a, uint64_t b) {
  return mix_bits(mix_bits(mix_bits(mix_bits(seed) ^ checksum(purpose)) ^ a) ^ b);
}

RandomStream::RandomStream(uint64_t seed, std::string_view purpose, uint64_t a, uint64_t b)
    : key_(random_bits(seed, purpose, a, b)) {}

uint64_t RandomStream::bits() { return mix_bits(key_ ^ mix_bits(counter_++)); }

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

}  // namespace ballast
