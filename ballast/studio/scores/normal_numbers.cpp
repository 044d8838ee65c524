// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/scores/normal_numbers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace ballast::scores {
namespace {

constexpr size_t kPairs = 256;  // made at a time: small enough for the first cache

// log(x) for a normal x > 0, by x = m * 2^k with m in [0.7, 1.4) and the series of atanh. Written
// out, since libraries' logarithms differ in the last bit between processors and do not vectorise.
inline float log_of(float x) {
  constexpr uint32_t kSqrtHalf = 0x3f3504f3;
  const uint32_t bits = std::bit_cast<uint32_t>(x) - kSqrtHalf;
  const float k = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  const float m = std::bit_cast<float>((bits & 0x007fffffU) + kSqrtHalf);
  const float s = (m - 1) / (m + 1), q = s * s;
  const float series = s * (2 + q * (2.0F / 3 + q * (2.0F / 5 + q * (2.0F / 7 + q * (2.0F / 9)))));
  return k * std::numbers::ln2_v<float> + series;
}

// Two normal numbers from 64 random bits each (Box-Muller): a radius from the upper half, an angle
// within [-pi/4, pi/4) and a quarter turn from the lower.
void make_pairs(const std::array<uint64_t, kPairs>& bits, std::array<float, 2 * kPairs>& out) {
  for (size_t i = 0; i < kPairs; ++i) {
    const auto upper = static_cast<uint32_t>(bits[i] >> 32);
    const auto lower = static_cast<uint32_t>(bits[i]);
    // 31 bits, so that conversions are of signed numbers, which vectorise.
    const float u = (static_cast<float>(static_cast<int32_t>(upper >> 1)) + 0.5F) * 0x1p-31F;
    const float radius = std::sqrt(std::max(0.0F, -2 * log_of(u)));
    const float x = (static_cast<float>(static_cast<int32_t>(lower >> 2)) * 0x1p-30F - 0.5F) *
                    (std::numbers::pi_v<float> / 2);
    const float q = x * x;
    const float sine = x * (1 + q * (-1.0F / 6 + q * (1.0F / 120 + q * (-1.0F / 5040))));
    const float cosine =
        1 + q * (-1.0F / 2 + q * (1.0F / 24 + q * (-1.0F / 720 + q * (1.0F / 40320))));
    const float sign = 1.0F - static_cast<float>(static_cast<int32_t>(lower & 2U));
    const float a = (lower & 1U) != 0 ? -sine : cosine, b = (lower & 1U) != 0 ? cosine : sine;
    out[i] = sign * radius * a;
    out[kPairs + i] = sign * radius * b;
  }
}

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
  return x ^ (x >> 32);
}

}  // namespace

void fill_normal(uint64_t key, std::span<float> out) {
  std::array<uint64_t, kPairs> bits{};
  std::array<float, 2 * kPairs> numbers{};
  uint64_t counter = key;
  for (size_t done = 0; done < out.size(); done += numbers.size()) {
    for (uint64_t& word : bits) word = mix(counter += 0x9e3779b97f4a7c15ULL);
    make_pairs(bits, numbers);
    std::copy_n(numbers.begin(), std::min(numbers.size(), out.size() - done),
                out.begin() + static_cast<ptrdiff_t>(done));
  }
}

}  // namespace ballast::scores
