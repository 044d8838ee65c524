// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/expert_rows.h"

namespace ballast {

at::Tensor ExpertGroup::rows_of(const at::Tensor& x) const {
  return x.narrow(0, row, experts * rows).view({experts, rows, x.size(1)});
}

at::Tensor ExpertGroup::slices_of(const at::Tensor& stack) const {
  return stack.narrow(0, expert, experts);
}

std::vector<ExpertGroup> expert_groups(at::IntArrayRef rows_of_expert, int64_t rows) {
  std::vector<ExpertGroup> groups;
  int64_t row = 0;
  for (int64_t expert = 0; expert < static_cast<int64_t>(rows_of_expert.size()); ++expert) {
    const int64_t count = rows_of_expert[expert];
    TORCH_CHECK(count >= 0, "expert ", expert, " has ", count, " rows");
    if (count == 0) continue;
    if (!groups.empty() && groups.back().rows == count &&
        groups.back().expert + groups.back().experts == expert) {
      ++groups.back().experts;
    } else {
      groups.push_back({expert, 1, row, count});
    }
    row += count;
  }
  TORCH_CHECK(row == rows, "the experts' rows sum to ", row, ", but there are ", rows);
  return groups;
}

}  // namespace ballast
