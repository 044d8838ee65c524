// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>

#include "ballast/kernels/adam.h"
#include "ballast/kernels/upload.h"

namespace ballast {

using at::Tensor;

Tensor Optimizer::gradient_norm(Owner first, Owner last) const {
  const auto dtype = table_.master().scalar_type();  // bf16 gradients are summed in fp32
  return at::linalg_vector_norm(table_.range(first, last).of(table_.gradient()), 2, std::nullopt,
                                /*keepdim=*/false, dtype);
}

void Optimizer::update(int64_t update, double learning_rate, double norm) {
  const at::NoGradGuard no_grad;
  // The small constant is PyTorch's, so that both clip alike.
  const double shorter = config_.clip_norm > 0 ? config_.clip_norm / (norm + 1e-6) : 1.0;
  const Tensor scale = at::full({}, std::min(shorter, 1.0), table_.master().options());
  for (const ParameterTable::Group& group : table_.groups()) {
    const auto part = [&](const Tensor& flat) {
      return flat.narrow(0, group.begin, group.end - group.begin);
    };
    const AdamBuffers buffers{part(table_.working()), part(table_.master()),
                              part(table_.gradient()), part(table_.first_moment()),
                              part(table_.second_moment())};
    const AdamConstants constants{.beta1 = config_.beta1,
                                  .beta2 = config_.beta2,
                                  .epsilon = config_.epsilon,
                                  .weight_decay = group.decay ? config_.weight_decay : 0.0};
    const Tensor numbers =
        upload(adam_numbers(constants, learning_rate, update), table_.master().device());
    adam_(buffers, constants, numbers, scale);
  }
}

void Optimizer::clear_gradients() { table_.gradient().zero_(); }

}  // namespace ballast
