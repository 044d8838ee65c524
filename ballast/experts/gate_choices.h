// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::experts {

// A gate's look at the tokens of P groups, without gradients. On a GPU the host never waits.
struct GateChoices {
  at::Tensor expert;  // [T, K] int64, best first; of equal experts that with the lower number
  // [P, C, E] float64: softmax probabilities, summed over each C-th part of a group's tokens.
  at::Tensor probability_sums;
};

// logits [T, E] fp32 or fp64; compared are logits divided by the experts' `lengths` [E] (undefined:
// by nothing). K is at most E.
GateChoices gate_choices(const at::Tensor& logits, const at::Tensor& lengths, int64_t groups,
                         int64_t of_token);

// The balance loss of each group, without its weight: E sum_e share_e mean_e, of the share of first
// choices and the mean probability of each expert.
struct GateBalance {
  at::Tensor losses;  // [P] float64
  at::Tensor shares;  // [P, E] float64: of each, times `scale`
};

// expert [T, K] int64, probability_sums as above.
GateBalance gate_balance(const at::Tensor& expert, const at::Tensor& probability_sums,
                         double scale);

}  // namespace ballast::experts
