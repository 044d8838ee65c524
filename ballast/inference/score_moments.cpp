// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/score_moments.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_eigvalsh.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

namespace ballast::inference {

using at::Tensor;

void ScoreMoments::add(const Tensor& scores, const Tensor& counted) {
  const Tensor wide = scores.detach().to(at::kDouble);
  const Tensor ones = counted.to(at::kDouble).unsqueeze(1);                   // [T, 1]
  const Tensor rows = (wide - wide.mean(1, true)).masked_fill(ones == 0, 0);  // [T, E]
  const Tensor with_ones = at::cat({rows, ones}, 1);                          // [T, E + 1]
  const Tensor product = at::mm(with_ones.t(), with_ones);
  sums_ = sums_.defined() ? sums_.add_(product) : product;
}

Tensor& ScoreMoments::sums() {
  sums_ = sums_.defined() ? sums_.cpu() : at::zeros({experts_ + 1, experts_ + 1}, at::kDouble);
  return sums_;
}

double ScoreMoments::first_direction_share() const {
  constexpr double kRounding = 1e-12;  // of sums in double
  if (!sums_.defined()) return 0;
  const Tensor sums = sums_.cpu();
  const double tokens = sums[experts_][experts_].item<double>();
  if (tokens == 0) return 0;
  const Tensor products = sums.narrow(0, 0, experts_).narrow(1, 0, experts_) / tokens;  // [E, E]
  const Tensor mean = sums[experts_].narrow(0, 0, experts_) / tokens;                   // [E]
  const Tensor variances = products - at::outer(mean, mean);
  const double all = variances.trace().item<double>();
  if (!std::isfinite(all)) return std::numeric_limits<double>::quiet_NaN();
  if (all <= kRounding * products.trace().item<double>()) return 0;
  return at::linalg_eigvalsh(variances)[-1].item<double>() / all;  // in ascending order
}

}  // namespace ballast::inference
