// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/plain_number.h"

#include <fmt/format.h>

#include <cmath>

namespace ballast::config {

std::string plain_number(double value) {
  constexpr double kExact = 9e15;  // whole numbers up to here are
  if (value != std::floor(value) || std::abs(value) > kExact) return fmt::format("{:g}", value);
  std::string digits = fmt::format("{:.0f}", std::abs(value));
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return fmt::format("{}{}", value < 0 ? "-" : "", digits);
}

}  // namespace ballast::config
