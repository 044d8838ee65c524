// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/expert_ranks.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

namespace ballast {
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

// A choice's place among all, sorted by expert, less the place of its expert's first.
void count_by_sorting(const Tensor& expert, const Tensor& rank, const Tensor& counts) {
  counts.scatter_add_(1, expert, at::ones_like(expert));
  const Tensor first = counts.cumsum(1) - counts;  // [G, E + 1]
  const Tensor order = at::argsort(expert, /*stable=*/true, /*dim=*/1);
  rank.scatter_(1, order, at::arange(expert.size(1), expert.options()).expand_as(order));
  rank.sub_(first.gather(1, expert));
}

}  // namespace

ExpertRanks expert_ranks(const Tensor& expert, int64_t experts) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(expert.dim() == 2 && expert.scalar_type() == at::kLong,
              "expert_ranks: want int64 experts [G, C], got ", expert.sizes());
  const Tensor chosen = expert.contiguous(), rank = at::empty_like(chosen);
  const Tensor counts = at::zeros({expert.size(0), experts + 1}, expert.options());
  (expert.is_cpu() ? count_on_cpu : count_by_sorting)(chosen, rank, counts);
  return {rank, counts.narrow(1, 0, experts)};
}

}  // namespace ballast
