// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "ballast/kernels/weight_average.h"

namespace ballast::training {

using at::Tensor;
using parameters::ParameterTable;
using parameters::Update;

Tensor Optimizer::gradient_norm(parameters::Owner first, parameters::Owner last) const {
  const auto dtype = table_.master().scalar_type();  // bf16 gradients are summed in fp32
  const auto norm = [&](const Tensor& values) {
    return at::linalg_vector_norm(values, 2, std::nullopt, /*keepdim=*/false, dtype);
  };
  std::vector<Tensor> norms;
  for (const ParameterTable::Range& range : table_.ranges(first, last, Update::kMuon))
    norms.push_back(norm(range.of(table_.gradient())));
  if (norms.empty()) return at::zeros({}, table_.master().options());
  return norms.size() == 1 ? norms.front() : norm(at::stack(norms));
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
  // The plain average of the first updates, then an exponential one: nothing to correct for.
  const double share = std::max(1 - config_.average, 1 / static_cast<double>(update));
  return at::cat({kernels::adam_numbers(constants(true, 1), learning_rate, update),
                  at::full({1}, share, at::kDouble)});
}

void Optimizer::update(const Tensor& numbers, const Tensor& scale) {
  const at::NoGradGuard no_grad;
  for (const ParameterTable::Group& group : table_.groups()) {
    if (group.update != Update::kAdam) continue;
    const auto part = [&](const Tensor& flat) {
      return flat.narrow(0, group.begin, group.end - group.begin);
    };
    kernels::adam_({part(table_.working()), part(table_.master()), part(table_.gradient()),
                    part(table_.first_moment()), part(table_.second_moment())},
                   constants(group.decay, group.rate), numbers.narrow(0, 0, 3), scale);
  }
  muon_.update(numbers, scale);
  if (const Tensor& average = table_.average(); average.defined()) {
    kernels::average_weights_(average, table_.master().narrow(0, 0, average.numel()),
                              numbers.narrow(0, 3, 1), scale);
  }
}

}  // namespace ballast::training
