// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::experts {

struct ExpertRanks {
  at::Tensor rank;   // [G, C] int64: how many before it in its group chose the same
  at::Tensor loads;  // [G, E] int64: how many chose each expert
};

// Counts choices group by group, in their order. expert [G, C] int64, each in [0, experts], where
// `experts` stands for none: counted by itself, and not among the loads. The host never waits.
ExpertRanks expert_ranks(const at::Tensor& expert, int64_t experts);

}  // namespace ballast::experts
