// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ballast {

// Neighbouring experts with equally many rows each, in tensors whose rows are sorted by expert.
struct ExpertGroup {
  int64_t expert, experts;  // first, how many
  int64_t row, rows;        // first, how many each; never zero

  // Their rows of x [N, D] -> [experts, rows, D], and their slices of a stack of weights. Views.
  at::Tensor rows_of(const at::Tensor& x) const;
  at::Tensor slices_of(const at::Tensor& stack) const;
};

// All experts that have rows, as few groups as possible. Refuses what does not sum to `rows`.
std::vector<ExpertGroup> expert_groups(at::IntArrayRef rows_of_expert, int64_t rows);

}  // namespace ballast
