// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>

namespace ballast::training {

using at::Tensor;

Tensor Optimizer::gradient_norm(parameters::Owner first, parameters::Owner last) const {
  const auto dtype = table_.master().scalar_type();  // bf16 gradients are summed in fp32
  return at::linalg_vector_norm(table_.range(first, last).of(table_.gradient()), 2, std::nullopt,
                                /*keepdim=*/false, dtype);
}

kernels::AdamConstants Optimizer::constants(bool decays, double rate) const {
  return {.beta1 = config_.beta1,
          .beta2 = config_.beta2,
          .epsilon = config_.epsilon,
          .weight_decay = decays ? config_.weight_decay : 0.0,
          .rate = rate,
          .clear = true};
}

Tensor Optimizer::numbers(int64_t update, double learning_rate) const {
  return kernels::adam_numbers(constants(true, 1), learning_rate, update);
}

void Optimizer::update(const Tensor& numbers, const Tensor& scale) {
  const at::NoGradGuard no_grad;
  for (const parameters::ParameterTable::Group& group : table_.groups()) {
    const auto part = [&](const Tensor& flat) {
      return flat.narrow(0, group.begin, group.end - group.begin);
    };
    kernels::adam_({part(table_.working()), part(table_.master()), part(table_.gradient()),
                    part(table_.first_moment()), part(table_.second_moment())},
                   constants(group.decay, group.rate), numbers, scale);
  }
}

}  // namespace ballast::training
