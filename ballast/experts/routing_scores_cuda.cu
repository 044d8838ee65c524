// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ballast/experts/best_expert.h"
#include "ballast/experts/expert_lanes_cuda.cuh"
#include "ballast/experts/operations_cuda.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using kernels::OptionalTensor;

constexpr int kThreads = 256;

template <typename Scalar>
struct Affinities {
  const Scalar *rows, *lengths;    // [T, E]; [E] or null
  const int64_t* row_of_position;  // [T] or null
  int64_t tokens;
  int experts;
};

// kShare lanes have one token and share the experts.
template <int kShare, typename Scalar>
__global__ void __launch_bounds__(kThreads)
    score_kernel(Affinities<Scalar> in, float* scores, int32_t* best) {
  const int lane = threadIdx.x % kShare;
  const int64_t position = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kShare;
  if (position >= in.tokens) return;
  const int64_t token = in.row_of_position != nullptr ? in.row_of_position[position] : position;
  BestExpert<float> found;
  for (int e = lane; e < in.experts; e += kShare) {
    const auto score =
        static_cast<float>(score_of(in.rows + token * in.experts, in.lengths, int64_t{e}));
    scores[position * in.experts + e] = score;
    found.offer(score, e);
  }
  found = best_of_lanes<kShare>(found);
  if (lane == 0) best[position] = found.expert;
}

}  // namespace

void routing_scores_cuda(const Tensor& affinities, const OptionalTensor& lengths,
                         const OptionalTensor& row_of_position, const Tensor& scores,
                         const Tensor& best) {
  const c10::cuda::CUDAGuard guard(affinities.device());
  const int64_t tokens = affinities.size(0);
  if (tokens == 0) return;
  AT_DISPATCH_FLOATING_TYPES(affinities.scalar_type(), "routing_scores", [&] {
    const Affinities<scalar_t> in{
        .rows = affinities.const_data_ptr<scalar_t>(),
        .lengths = kernels::data_or_null<scalar_t>(lengths),
        .row_of_position = kernels::data_or_null<int64_t>(row_of_position),
        .tokens = tokens,
        .experts = static_cast<int>(affinities.size(1))};
    auto* const kernel = lanes_for(in.experts) == kLanes ? score_kernel<kLanes, scalar_t>
                                                         : score_kernel<kFewLanes, scalar_t>;
    kernel<<<blocks_for(tokens, in.experts, kThreads), kThreads, 0,
             at::cuda::getCurrentCUDAStream()>>>(in, scores.mutable_data_ptr<float>(),
                                                 best.mutable_data_ptr<int32_t>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
}

}  // namespace ballast::experts
