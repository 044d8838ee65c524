// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/gradient_scale.h"

#include <ATen/ops/full.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "ballast/kernels/find_op.h"

namespace ballast::kernels {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "gradient_scale(Tensor sums, Tensor limit, float clip_norm, bool over_all, ScalarType dtype) "
      "-> (Tensor, Tensor)");
}

namespace {

std::tuple<Tensor, Tensor> gradient_scale_cpu(const Tensor& sums, const Tensor& limit,
                                              double clip_norm, bool over_all,
                                              at::ScalarType dtype) {
  const auto* s = sums.const_data_ptr<double>();
  const double shared = std::hypot(std::sqrt(s[1]), s[2]), experts = std::sqrt(s[3]);
  const double norm = over_all ? std::hypot(shared, experts) : shared;
  const bool is_good = std::isfinite(s[0]) && std::isfinite(norm) && std::isfinite(experts) &&
                       norm <= *limit.const_data_ptr<double>();
  // The small constant is PyTorch's, so that both clip alike.
  const double shorter = clip_norm > 0 ? clip_norm / (norm + 1e-6) : 1.0;
  const double scale = is_good ? std::min(shorter, 1.0) : std::numeric_limits<double>::quiet_NaN();
  return {at::full({}, scale, sums.options().dtype(dtype)), at::full({1}, norm, sums.options())};
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) { library.impl("gradient_scale", gradient_scale_cpu); }

GradientScale gradient_scale(const Tensor& sums, const Tensor& limit, const ClipRule& rule,
                             at::ScalarType dtype) {
  static const auto op = find_op<std::tuple<Tensor, Tensor>(
      const Tensor&, const Tensor&, double, bool, at::ScalarType)>("ballast::gradient_scale");
  TORCH_CHECK(sums.dim() == 1 && sums.size(0) >= 4 && sums.scalar_type() == at::kDouble &&
                  sums.is_contiguous() && limit.numel() == 1 &&
                  limit.scalar_type() == at::kDouble && limit.device() == sums.device(),
              "gradient_scale: want fp64 sums [4 or more] and a limit [1] beside them, got ",
              sums.sizes(), " and ", limit.sizes());
  auto [scale, norm] = op.call(sums, limit, rule.clip_norm, rule.over_all, dtype);
  return {scale, norm};
}

}  // namespace ballast::kernels
