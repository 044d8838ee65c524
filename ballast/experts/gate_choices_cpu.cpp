// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ballast/experts/best_expert.h"
#include "ballast/experts/gate_parts.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using kernels::OptionalTensor;

template <typename Scalar>
void choose(const Scalar* logits, const Scalar* lengths, int64_t experts, int64_t of_token,
            int64_t* chosen) {
  for (int64_t k = 0; k < of_token; ++k) {
    const auto is_taken = [&](int64_t e) { return std::find(chosen, chosen + k, e) != chosen + k; };
    int64_t first = 0;  // where none is better
    while (is_taken(first)) ++first;
    BestExpert<Scalar> best{.expert = static_cast<int>(first)};
    for (int64_t e = first; e < experts; ++e)
      if (!is_taken(e)) best.offer(score_of(logits, lengths, e), static_cast<int>(e));
    chosen[k] = best.expert;
  }
}

template <typename Scalar>
void add_probabilities(const Scalar* logits, int64_t experts, std::vector<Scalar>& probabilities,
                       double* sums) {
  const Scalar largest = *std::max_element(logits, logits + experts);
  Scalar sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    probabilities[static_cast<size_t>(e)] = std::exp(logits[e] - largest);
    sum += probabilities[static_cast<size_t>(e)];
  }
  for (int64_t e = 0; e < experts; ++e)
    sums[e] += static_cast<double>(probabilities[static_cast<size_t>(e)] / sum);
}

void choose_on_cpu(const Tensor& logits, const OptionalTensor& lengths, const Tensor& expert,
                   const Tensor& probability_sums) {
  const int64_t experts = logits.size(1), of_token = expert.size(1);
  const int64_t groups = probability_sums.size(0), parts = probability_sums.size(1);
  const int64_t tokens = logits.size(0) / groups;
  auto* const chosen = expert.mutable_data_ptr<int64_t>();
  auto* const sums = probability_sums.mutable_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "gate_choices", [&] {
    const auto* const rows = logits.const_data_ptr<scalar_t>();
    const auto* const length = kernels::data_or_null<scalar_t>(lengths);
    at::parallel_for(0, groups * parts, 1, [&](int64_t part, int64_t end) {
      std::vector<scalar_t> probabilities(static_cast<size_t>(experts));
      for (; part < end; ++part) {
        double* const sum = sums + part * experts;
        std::fill_n(sum, experts, 0.0);
        const int64_t first = part % parts * kTokensOfGatePart;
        const int64_t last = std::min(first + kTokensOfGatePart, tokens);
        for (int64_t t = first; t < last; ++t) {
          const int64_t token = part / parts * tokens + t;
          choose(rows + token * experts, length, experts, of_token, chosen + token * of_token);
          add_probabilities(rows + token * experts, experts, probabilities, sum);
        }
      }
    });
  });
}

void balance_on_cpu(const Tensor& expert, const Tensor& probability_sums, double scale,
                    const Tensor& losses, const Tensor& shares) {
  const int64_t groups = probability_sums.size(0), parts = probability_sums.size(1),
                experts = probability_sums.size(2), of_token = expert.size(1);
  const int64_t tokens = expert.size(0) / groups;
  const auto* const chosen = expert.const_data_ptr<int64_t>();
  const auto* const sums = probability_sums.const_data_ptr<double>();
  for (int64_t group = 0; group < groups; ++group) {
    std::vector<int64_t> firsts(static_cast<size_t>(experts));
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t first = chosen[(group * tokens + t) * of_token];
      TORCH_CHECK_INDEX(first >= 0 && first < experts, "gate_balance: expert ", first, " of ",
                        experts);
      ++firsts[static_cast<size_t>(first)];
    }
    double loss = 0;
    for (int64_t e = 0; e < experts; ++e) {
      double sum = 0;
      for (int64_t part = 0; part < parts; ++part)
        sum += sums[(group * parts + part) * experts + e];
      const double share =
          static_cast<double>(firsts[static_cast<size_t>(e)]) / static_cast<double>(tokens);
      loss += share * sum / static_cast<double>(tokens);
      shares.mutable_data_ptr<double>()[group * experts + e] = share * scale;
    }
    losses.mutable_data_ptr<double>()[group] = loss * static_cast<double>(experts);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("gate_choices", choose_on_cpu);
  library.impl("gate_balance", balance_on_cpu);
}

}  // namespace ballast::experts
