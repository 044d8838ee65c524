// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_ranks.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ballast/kernels/find_op.h"

namespace ballast::experts {

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def("count_choices(Tensor expert, Tensor(a!) rank, Tensor(b!) counts) -> ()");
}

namespace {

using at::Tensor;

void count_on_cpu(const Tensor& expert, const Tensor& rank, const Tensor& counts) {
  const int64_t choices = expert.size(1), kinds = counts.size(1);
  const auto* chosen = expert.const_data_ptr<int64_t>();
  auto* ranks = rank.mutable_data_ptr<int64_t>();
  auto* loads = counts.mutable_data_ptr<int64_t>();
  at::parallel_for(0, expert.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      int64_t* const load = loads + group * kinds;
      for (int64_t i = group * choices; i < (group + 1) * choices; ++i) {
        TORCH_CHECK_INDEX(chosen[i] >= 0 && chosen[i] < kinds, "expert_ranks: expert ", chosen[i],
                          " of ", kinds - 1);
        ranks[i] = load[chosen[i]]++;
      }
    }
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) { library.impl("count_choices", count_on_cpu); }

ExpertRanks expert_ranks(const Tensor& expert, int64_t experts) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(expert.dim() == 2 && expert.scalar_type() == at::kLong,
              "expert_ranks: want int64 experts [G, C], got ", expert.sizes());
  const Tensor chosen = expert.contiguous(), rank = at::empty_like(chosen);
  const Tensor counts = at::zeros({expert.size(0), experts + 1}, expert.options());
  if (chosen.numel() > 0) {
    static const auto op = kernels::find_op<void(const Tensor&, const Tensor&, const Tensor&)>(
        "ballast::count_choices");
    op.call(chosen, rank, counts);
  }
  return {rank, counts.narrow(1, 0, experts)};
}

}  // namespace ballast::experts
