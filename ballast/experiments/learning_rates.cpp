// SPDX-License-Identifier: Apache-2.0
#include "ballast/experiments/learning_rates.h"

#include <cmath>

namespace ballast {

std::vector<double> learning_rates_around(double middle, size_t count) {
  std::vector<double> rates;
  const double half = static_cast<double>(count / 2);
  for (size_t i = 0; i < count; ++i)
    rates.push_back(middle * std::exp2((static_cast<double>(i) - half) / 2));
  return rates;
}

}  // namespace ballast
