// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using kernels::OptionalTensor;

struct Sizes {
  int64_t experts, of_token;
  bool sigmoid, among_all;
};

// The largest affinity of a row, and the sum of exp(affinity - largest).
template <typename Scalar>
std::pair<Scalar, Scalar> partition(const Scalar* affinities, int64_t experts) {
  const Scalar largest = *std::max_element(affinities, affinities + experts);
  Scalar sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += std::exp(affinities[e] - largest);
  return {largest, sum};
}

template <typename Scalar>
void weigh(const Sizes& sizes, const Scalar* affinities, const int64_t* expert, Scalar* weights) {
  const int64_t chosen = sizes.of_token;
  if (sizes.sigmoid) {
    for (int64_t k = 0; k < chosen; ++k) weights[k] = 1 / (1 + std::exp(-affinities[expert[k]]));
    return;
  }
  if (sizes.among_all) {
    const auto [largest, sum] = partition(affinities, sizes.experts);
    for (int64_t k = 0; k < chosen; ++k)
      weights[k] = std::exp(affinities[expert[k]] - largest) / sum;
    return;
  }
  Scalar largest = affinities[expert[0]], sum = 0;
  for (int64_t k = 1; k < chosen; ++k) largest = std::max(largest, affinities[expert[k]]);
  for (int64_t k = 0; k < chosen; ++k) {
    weights[k] = std::exp(affinities[expert[k]] - largest);
    sum += weights[k];
  }
  for (int64_t k = 0; k < chosen; ++k) weights[k] /= sum;
}

template <typename Scalar>
void weigh_backward(const Sizes& sizes, const Scalar* dweights, const Scalar* affinities,
                    const int64_t* expert, const Scalar* weights, Scalar* daffinities) {
  const int64_t chosen = sizes.of_token;
  if (!sizes.sigmoid && sizes.among_all) {
    const auto [largest, sum] = partition(affinities, sizes.experts);
    Scalar along = 0;
    for (int64_t k = 0; k < chosen; ++k) along += dweights[k] * weights[k];
    for (int64_t e = 0; e < sizes.experts; ++e)
      daffinities[e] = -along * std::exp(affinities[e] - largest) / sum;
    for (int64_t k = 0; k < chosen; ++k) daffinities[expert[k]] += dweights[k] * weights[k];
    return;
  }
  std::fill_n(daffinities, sizes.experts, Scalar(0));
  Scalar mean = 0;
  for (int64_t k = 0; k < chosen; ++k) mean += dweights[k] * weights[k];
  for (int64_t k = 0; k < chosen; ++k) {
    const Scalar w = weights[k];
    daffinities[expert[k]] = sizes.sigmoid ? dweights[k] * w * (1 - w) : w * (dweights[k] - mean);
  }
}

// The gradient of the loss beside, by the affinities.
template <typename Scalar>
void add_balance(int64_t experts, const Scalar* affinities, const double* balance,
                 Scalar* daffinities) {
  const auto [largest, sum] = partition(affinities, experts);
  Scalar mean = 0;
  for (int64_t e = 0; e < experts; ++e)
    mean += static_cast<Scalar>(balance[e]) * std::exp(affinities[e] - largest) / sum;
  for (int64_t e = 0; e < experts; ++e)
    daffinities[e] +=
        (static_cast<Scalar>(balance[e]) - mean) * std::exp(affinities[e] - largest) / sum;
}

int64_t rows_per_task(int64_t experts) { return std::max<int64_t>(1, 16384 / (experts + 1)); }

Tensor chosen_weights_cpu(const Tensor& affinities, const Tensor& expert, bool sigmoid,
                          bool among_all) {
  const Tensor weights = at::empty(expert.sizes(), affinities.options());  // [T, K]
  AT_DISPATCH_FLOATING_TYPES(affinities.scalar_type(), "chosen_weights", [&] {
    const Sizes sizes{affinities.size(1), expert.size(1), sigmoid, among_all};
    const auto* const a = affinities.const_data_ptr<scalar_t>();
    const auto* const e = expert.const_data_ptr<int64_t>();
    auto* const w = weights.mutable_data_ptr<scalar_t>();
    at::parallel_for(
        0, expert.size(0), rows_per_task(sizes.experts), [&](int64_t begin, int64_t end) {
          for (int64_t t = begin; t < end; ++t)
            weigh(sizes, a + t * sizes.experts, e + t * sizes.of_token, w + t * sizes.of_token);
        });
  });
  return weights;
}

Tensor chosen_weights_backward_cpu(const Tensor& dweights, const Tensor& affinities,
                                   const Tensor& expert, const Tensor& weights, bool sigmoid,
                                   bool among_all, const OptionalTensor& balance) {
  const Tensor daffinities = at::empty_like(affinities);
  const auto* const of_groups = kernels::data_or_null<double>(balance);
  const int64_t tokens = balance ? affinities.size(0) / balance->size(0) : 0;  // of a group
  AT_DISPATCH_FLOATING_TYPES(affinities.scalar_type(), "chosen_weights_backward", [&] {
    const Sizes sizes{affinities.size(1), expert.size(1), sigmoid, among_all};
    const auto* const dw = dweights.const_data_ptr<scalar_t>();
    const auto* const a = affinities.const_data_ptr<scalar_t>();
    const auto* const e = expert.const_data_ptr<int64_t>();
    const auto* const w = weights.const_data_ptr<scalar_t>();
    auto* const da = daffinities.mutable_data_ptr<scalar_t>();
    at::parallel_for(
        0, expert.size(0), rows_per_task(sizes.experts), [&](int64_t begin, int64_t end) {
          for (int64_t t = begin; t < end; ++t) {
            const int64_t row = t * sizes.experts, k = t * sizes.of_token;
            weigh_backward(sizes, dw + k, a + row, e + k, w + k, da + row);
            if (of_groups == nullptr) continue;
            add_balance(sizes.experts, a + row, of_groups + t / tokens * sizes.experts, da + row);
          }
        });
  });
  return daffinities;
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("chosen_weights", chosen_weights_cpu);
  library.impl("chosen_weights_backward", chosen_weights_backward_cpu);
}

}  // namespace ballast::experts
