// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/routing_scores.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>

#include "ballast/experts/best_expert.h"
#include "ballast/kernels/find_op.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "routing_scores(Tensor affinities, Tensor? lengths, Tensor? row_of_position, "
      "Tensor(a!) scores, Tensor(b!) best) -> ()");
}

namespace {

using at::Tensor;
using kernels::OptionalTensor;

void score_on_cpu(const Tensor& affinities, const OptionalTensor& lengths,
                  const OptionalTensor& row_of_position, const Tensor& scores, const Tensor& best) {
  const int64_t experts = affinities.size(1);
  const auto* const rows = kernels::data_or_null<int64_t>(row_of_position);
  auto* const to = scores.mutable_data_ptr<float>();
  auto* const best_of = best.mutable_data_ptr<int32_t>();
  AT_DISPATCH_FLOATING_TYPES(affinities.scalar_type(), "routing_scores", [&] {
    const auto* const from = affinities.const_data_ptr<scalar_t>();
    const auto* const length = kernels::data_or_null<scalar_t>(lengths);
    const int64_t grain = std::max<int64_t>(1, 16384 / (experts + 1));
    at::parallel_for(0, affinities.size(0), grain, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const scalar_t* const row = from + (rows != nullptr ? rows[p] : p) * experts;
        float* const score = to + p * experts;
        BestExpert<float> found;
        for (int64_t e = 0; e < experts; ++e) {
          score[e] = static_cast<float>(score_of(row, length, e));
          found.offer(score[e], static_cast<int>(e));
        }
        best_of[p] = found.expert;
      }
    });
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) { library.impl("routing_scores", score_on_cpu); }

RoutingScores routing_scores(const Tensor& affinities, const Tensor& lengths,
                             const Tensor& row_of_position) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK(affinities.dim() == 2 &&
                  (!lengths.defined() || (lengths.numel() == affinities.size(1) &&
                                          lengths.scalar_type() == affinities.scalar_type())),
              "routing_scores: want affinities [T, E] and lengths [E], got ", affinities.sizes(),
              lengths.defined() ? " and other lengths" : "");
  RoutingScores result{
      .scores = at::empty(affinities.sizes(), affinities.options().dtype(at::kFloat)),
      .best = at::empty({affinities.size(0)}, affinities.options().dtype(at::kInt))};
  static const auto op =
      kernels::find_op<void(const Tensor&, const OptionalTensor&, const OptionalTensor&,
                            const Tensor&, const Tensor&)>("ballast::routing_scores");
  op.call(affinities.detach().contiguous(), kernels::contiguous_if_defined(lengths),
          kernels::contiguous_if_defined(row_of_position), result.scores, result.best);
  return result;
}

}  // namespace ballast::experts
