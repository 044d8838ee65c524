// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_rows.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>

namespace ballast::experts {

int64_t ExpertRows::experts() const {
  return ends.defined() ? ends.size(0) : static_cast<int64_t>(counts.size());
}

std::vector<int64_t> ExpertRows::counts_on_host() const {
  if (!ends.defined() || !counts.empty()) return counts;
  const at::Tensor here = ends.cpu();
  const auto* const end = here.const_data_ptr<int32_t>();
  std::vector<int64_t> rows(static_cast<size_t>(here.size(0)));
  std::adjacent_difference(end, end + rows.size(), rows.begin());
  return rows;
}

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

std::vector<ExpertPiece> expert_pieces(at::IntArrayRef rows_of_expert, int64_t rows,
                                       int64_t tasks) {
  // A cut close to the end of an expert is moved there: each piece costs a pass over the weights.
  const int64_t close = rows / tasks / 16;
  const auto end_of_task = [&](int64_t task) { return rows * (task + 1) / tasks; };
  std::vector<ExpertPiece> pieces;
  int64_t task = 0, row = 0;
  for (int64_t expert = 0; expert < static_cast<int64_t>(rows_of_expert.size()); ++expert) {
    const int64_t start = row, end = row + rows_of_expert[expert];
    while (row < end) {
      while (task + 1 < tasks && end_of_task(task) <= row + close) ++task;
      const int64_t cut = end_of_task(task) >= end - close ? end : end_of_task(task);
      pieces.push_back({task, expert, row, cut - row, row - start, end - start});
      row = cut;
    }
  }
  return pieces;
}

int64_t choose_tasks(int64_t rows, int64_t rows_each) {
  return std::clamp<int64_t>(rows / rows_each, 1, at::get_num_threads());
}

void for_each_piece(const std::vector<ExpertPiece>& pieces, int64_t tasks,
                    const std::function<void(size_t)>& work) {
  const auto run = [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;  // each thread has its own mode
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].task >= begin && pieces[i].task < end) work(i);
    }
  };
  // One task alone leaves the threads to the matrix products.
  tasks == 1 ? run(0, 1) : at::parallel_for(0, tasks, 1, run);
}

}  // namespace ballast::experts
