// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/weight_average.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <cmath>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/parallel_ranges.h"

namespace ballast::kernels {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "average_weights_(Tensor(a!) average, Tensor weights, Tensor share, Tensor gradient_scale) "
      "-> ()");
}

namespace {

void average_weights_cpu_(const Tensor& average, const Tensor& weights, const Tensor& share,
                          const Tensor& gradient_scale) {
  AT_DISPATCH_FLOATING_TYPES(average.scalar_type(), "average_weights_", [&] {
    if (!std::isfinite(gradient_scale.item<scalar_t>())) return;
    const scalar_t taken(*share.const_data_ptr<double>());
    auto* a = average.data_ptr<scalar_t>();
    const auto* w = weights.const_data_ptr<scalar_t>();
    parallel_ranges(average.numel(), 32768, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) a[i] += taken * (w[i] - a[i]);
    });
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("average_weights_", average_weights_cpu_);
}

void average_weights_(const Tensor& average, const Tensor& weights, const Tensor& share,
                      const Tensor& gradient_scale) {
  static const auto op = find_op<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)>(
      "ballast::average_weights_");
  const at::NoGradGuard no_grad;
  const auto dtype = average.scalar_type();
  TORCH_CHECK(average.dim() == 1 && weights.sizes() == average.sizes() &&
                  weights.scalar_type() == dtype && average.is_contiguous() &&
                  weights.is_contiguous() && weights.device() == average.device(),
              "average_weights_: want flat buffers alike, got ", average.sizes(), " and ",
              weights.sizes());
  TORCH_CHECK(share.numel() == 1 && share.scalar_type() == at::kDouble &&
                  share.device() == average.device() && gradient_scale.numel() == 1 &&
                  gradient_scale.scalar_type() == dtype &&
                  gradient_scale.device() == average.device(),
              "average_weights_: want an fp64 share and a gradient_scale beside the buffers");
  op.call(average, weights, share, gradient_scale);
}

}  // namespace ballast::kernels
