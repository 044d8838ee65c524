// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace ballast::assignment {

// The value of 16 bits in either format; infinities and NaN stay what they are.
inline float from_bfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline float from_float16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
  const uint32_t magnitude = uint32_t{bits & 0x7fffU} << 13;
  // 2^112 moves the exponent from fp16's bias to fp32's, denormals included.
  const float finite = std::bit_cast<float>(magnitude) * 0x1p112F;
  const bool is_finite = (bits & 0x7c00U) != 0x7c00U;
  const uint32_t value = is_finite ? std::bit_cast<uint32_t>(finite) : magnitude | 0x7f800000U;
  return std::bit_cast<float>(value | sign);
}

}  // namespace ballast::assignment
