// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <functional>

namespace ballast::test {

// Compares `gradient` with central differences of `loss` by every element of `x` (double).
// Differences of a smooth function in double with h = 1e-5 are good to about 1e-9 of the loss's
// scale.
inline void expect_gradient(const at::Tensor& x, const at::Tensor& gradient,
                            const std::function<double()>& loss, const std::string& name,
                            double tolerance = 1e-7) {
  ASSERT_EQ(x.scalar_type(), at::kDouble);
  const at::NoGradGuard no_grad;
  const double h = 1e-5;
  at::Tensor flat = x.view({-1});
  const at::Tensor expected = gradient.reshape({-1});
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const double value = flat[i].item<double>();
    flat[i] = value + h;
    const double above = loss();
    flat[i] = value - h;
    const double below = loss();
    flat[i] = value;
    const double difference = (above - below) / (2 * h), given = expected[i].item<double>();
    ASSERT_NEAR(given, difference, tolerance * std::max(1.0, std::abs(difference)))
        << name << "[" << i << "]";
  }
}

}  // namespace ballast::test
