// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>

#include "ballast/kernels/weight_average.h"

namespace ballast::training {

using at::Tensor;
using parameters::ParameterTable;
using parameters::Update;

Tensor Optimizer::norm_of(const std::vector<ParameterTable::Range>& ranges) const {
  const auto dtype = table_.master().scalar_type();  // bf16 gradients are summed in fp32
  const auto norm = [&](const Tensor& values) {
    return at::linalg_vector_norm(values, 2, std::nullopt, /*keepdim=*/false, dtype);
  };
  std::vector<Tensor> norms;
  for (const ParameterTable::Range& range : ranges)
    norms.push_back(norm(range.of(table_.gradient())));
  if (norms.empty()) return at::zeros({}, table_.master().options());
  return norms.size() == 1 ? norms.front() : norm(at::stack(norms));
}

Tensor Optimizer::gradient_norm(parameters::Owner first, parameters::Owner last) const {
  std::vector<ParameterTable::Range> here;
  for (const ParameterTable::Range& range : table_.ranges(first, last, Update::kMuon))
    std::ranges::copy(table_.held().common(range), std::back_inserter(here));
  return norm_of(here);
}

Tensor Optimizer::divided_gradient_norm() const {
  if (table_.held().is_whole()) return {};
  std::vector<ParameterTable::Range> here;
  for (const parameters::HeldState::Chunk& chunk : table_.held().chunks())
    here.push_back(chunk.own);
  return norm_of(here);
}

kernels::AdamConstants Optimizer::constants(bool decays, double rate, bool clears) const {
  return {.beta1 = config_.beta1,
          .beta2 = config_.beta2,
          .epsilon = config_.epsilon,
          .weight_decay = decays ? config_.weight_decay : 0.0,
          .rate = rate,
          .clear = clears};
}

Tensor Optimizer::numbers(int64_t update, double learning_rate) const {
  // The plain average of the first updates, then an exponential one: nothing to correct for.
  const double share = std::max(1 - config_.average, 1 / static_cast<double>(update));
  return at::cat({kernels::adam_numbers(constants(true, 1, true), learning_rate, update),
                  at::full({1}, share, at::kDouble)});
}

void Optimizer::update(const Tensor& numbers, const Tensor& scale) {
  const at::NoGradGuard no_grad;
  for (const ParameterTable::Group& group : table_.groups()) {
    if (group.update != Update::kAdam) continue;
    for (const ParameterTable::Range& range : table_.held().within({group.begin, group.end})) {
      const auto part = [&](const Tensor& flat) { return table_.part(flat, range); };
      kernels::adam_({part(table_.working()), part(table_.master()), part(table_.gradient()),
                      part(table_.first_moment()), part(table_.second_moment())},
                     constants(group.decay, group.rate, !group.forgotten), numbers.narrow(0, 0, 3),
                     scale);
    }
  }
  // Of what others move, this worker's own sums are left.
  for (const parameters::HeldState::Chunk& chunk : table_.held().chunks())
    chunk.all.of(table_.gradient()).zero_();
  muon_.update(numbers, scale);
  if (!table_.average().defined()) return;
  for (const ParameterTable::Range& range : table_.held().within({0, table_.gradient().numel()})) {
    kernels::average_weights_(table_.part(table_.average(), range),
                              table_.part(table_.master(), range), numbers.narrow(0, 3, 1), scale);
  }
}

}  // namespace ballast::training
