// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace ballast::test {

// What rounding may do to sums, for tests that compare them with the same in double.

inline at::Tensor exact(const at::Tensor& x) { return x.to(at::kDouble, false, true); }

// At most this share of a number is lost when it is rounded to the type.
inline double unit_of(at::ScalarType type) {
  return type == at::kBFloat16 ? 0x1p-8 : type == at::kFloat ? 0x1p-24 : 0x1p-53;
}

// What summing `length` terms of the type may change, where `terms` is the sum of their magnitudes:
// sums are kept in fp32 at least, where errors of a random sign add up like the square root of the
// length. Four of these.
inline at::Tensor summing(const at::Tensor& terms, int64_t length, at::ScalarType type) {
  const double unit = std::min(unit_of(type), unit_of(at::kFloat));
  return terms * (4 * unit * std::sqrt(static_cast<double>(length) + 1));
}

}  // namespace ballast::test
