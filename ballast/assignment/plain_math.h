// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

namespace ballast::assignment {

// exp and log to about nine digits. The C library's own differ in the last bit between processors.
inline double plain_exp(double x) {
  const double bits = std::clamp(x * 1.4426950408889634, -1000.0, 1000.0);
  const double whole = std::floor(bits + 0.5);
  const double f = (bits - whole) * 0.6931471805599453;  // -0.35 .. 0.35
  double y = 1.0;
  for (int i = 9; i > 0; --i) y = 1.0 + y * f / i;
  return std::ldexp(y, static_cast<int>(whole));
}

inline double plain_log(double x) {
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);        // 0.5 .. 1
  const double t = (mantissa - 0.75) / (mantissa + 0.75);  // -0.2 .. 0.143
  const double square = t * t;
  double y = 0;
  for (int i = 11; i > 0; i -= 2) y = y * square + 1.0 / i;
  constexpr double kLogOfThreeQuarters = -0.2876820724517809;
  return 2 * t * y + kLogOfThreeQuarters + exponent * 0.6931471805599453;
}

}  // namespace ballast::assignment
