// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/config/choices.h"

namespace ballast::experts {

// What each token takes of its K experts. affinities [T, E] fp32 or fp64, expert [K, T] int64, a
// token's all different -> [T, K].
// kSoftmax: each expert's probability among all E; of several, where they are renormalised, among
// those chosen. kSigmoid: the sigmoid of each one's affinity.
// The gradient by affinities is one pass over [T, E]. On a GPU the host never waits.
// `balance` [P, E] float64: where tokens are P equal groups, a loss beside has this gradient by the
// softmax probabilities of each token of a group. It is added on the way back.
struct ChosenGate {
  config::Gate gate = config::Gate::kSoftmax;
  bool renormalise = true;
};
at::Tensor chosen_weights(const at::Tensor& affinities, const at::Tensor& expert,
                          const ChosenGate& gate, const at::Tensor& balance = {});

}  // namespace ballast::experts
