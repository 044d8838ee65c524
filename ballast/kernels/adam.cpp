// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/adam.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <cmath>

#include "ballast/kernels/find_op.h"

namespace ballast::kernels {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "adam_(Tensor(a!) working, Tensor(b!) master, Tensor(c!) gradient, Tensor(d!) first_moment, "
      "Tensor(e!) second_moment, Tensor numbers, Tensor gradient_scale, float beta1, float beta2, "
      "float epsilon, float weight_decay, float rate, bool clear) -> ()");
}

Tensor adam_numbers(const AdamConstants& constants, double learning_rate, int64_t step) {
  const auto correction = [&](double beta) { return 1 - std::pow(beta, double(step)); };
  return at::tensor({learning_rate, correction(constants.beta1), correction(constants.beta2)},
                    at::kDouble);
}

void adam_(const AdamBuffers& buffers, const AdamConstants& constants, const Tensor& numbers,
           const Tensor& gradient_scale) {
  static const auto op =
      find_op<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                   const Tensor&, const Tensor&, double, double, double, double, double, bool)>(
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
  const auto master = buffers.master.scalar_type();
  TORCH_CHECK(
      buffers.first_moment.scalar_type() == master && buffers.second_moment.scalar_type() == master,
      "adam_: want moments in the master's dtype");
  TORCH_CHECK(numbers.numel() == 3 && numbers.is_contiguous() &&
                  numbers.scalar_type() == at::kDouble &&
                  numbers.device() == buffers.master.device(),
              "adam_: want three fp64 numbers on ", buffers.master.device(), ", got ",
              numbers.numel(), " of ", numbers.scalar_type(), " on ", numbers.device());
  TORCH_CHECK(gradient_scale.numel() == 1 && gradient_scale.scalar_type() == master &&
                  gradient_scale.device() == buffers.master.device(),
              "adam_: want gradient_scale on the buffers' device in the master's dtype");
  op.call(buffers.working, buffers.master, buffers.gradient, buffers.first_moment,
          buffers.second_moment, numbers, gradient_scale, constants.beta1, constants.beta2,
          constants.epsilon, constants.weight_decay, constants.rate, constants.clear);
}

}  // namespace ballast::kernels
