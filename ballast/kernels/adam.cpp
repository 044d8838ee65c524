// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/adam.h"

#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include "ballast/kernels/find_op.h"

namespace ballast {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "adam_(Tensor(a!) working, Tensor(b!) master, Tensor gradient, Tensor(c!) first_moment, "
      "Tensor(d!) second_moment, "
      "Tensor gradient_scale, float learning_rate, float beta1, float beta2, float epsilon, float "
      "weight_decay, int step) -> ()");
}

void adam_(const AdamBuffers& buffers, const AdamSettings& settings, const Tensor& gradient_scale) {
  static const auto op =
      find_op<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                   const Tensor&, double, double, double, double, double, int64_t)>(
          "ballast::adam_");
  const at::NoGradGuard no_grad;
  const int64_t size = buffers.master.numel();
  for (const Tensor* buffer : {&buffers.working, &buffers.master, &buffers.gradient,
                               &buffers.first_moment, &buffers.second_moment}) {
    TORCH_CHECK(buffer->dim() == 1 && buffer->numel() == size && buffer->is_contiguous(),
                "adam_: want flat buffers of ", size, " elements, got ", buffer->sizes());
  }
  TORCH_CHECK(buffers.gradient.scalar_type() == buffers.working.scalar_type(),
              "adam_: want gradients in the working dtype, got ", buffers.gradient.scalar_type(),
              " and ", buffers.working.scalar_type());
  op.call(buffers.working, buffers.master, buffers.gradient, buffers.first_moment,
          buffers.second_moment, gradient_scale, settings.learning_rate, settings.beta1,
          settings.beta2, settings.epsilon, settings.weight_decay, settings.step);
}

}  // namespace ballast
