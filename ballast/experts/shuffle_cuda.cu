// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "ballast/experts/operations_cuda.h"
#include "ballast/experts/shuffle_parts.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/system/index_permutation.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using kernels::OptionalTensor;

constexpr int kThreads = 128;

// A layer for each blockIdx.y. `width` threads have a part that is sent, and one that is received
// where `places` are wanted (not null).
__global__ void __launch_bounds__(kThreads)
    draw_kernel(ShuffleShape shape, ShuffleParts parts, int width, const int64_t* keys,
                int64_t* slots, int64_t* places) {
  // Fewer than 2^32: divisions of 64 bits would take longer than all the rest.
  const unsigned part = (blockIdx.x * kThreads + threadIdx.x) / static_cast<unsigned>(width);
  const auto groups = static_cast<unsigned>(shape.groups);
  const int64_t group = part / groups, other = part % groups;
  if (group >= parts.local()) return;
  const int first = threadIdx.x % width;
  const int64_t size = parts.local() * shape.tokens_of_group;
  keys += blockIdx.y * parts.local();
  slots += blockIdx.y * 2 * size;
  const SentPart out = parts.sent(parts.own().begin + group, other);
  const IndexPermutation order(static_cast<uint64_t>(shape.tokens_of_group),
                               static_cast<uint64_t>(keys[group]));
  for (int64_t i = first; i < out.size; i += width) {
    const auto token = static_cast<int64_t>(order(static_cast<uint64_t>(out.first + i)));
    set_both(slots, size, out.slot + i, group * shape.tokens_of_group + token);
  }
  if (places == nullptr) return;
  places += blockIdx.y * 2 * size;
  const ReceivedPart in = parts.received(other, parts.own().begin + group);
  for (int64_t i = first; i < in.size; i += width)
    set_both(places, size, in.place + i, in.arrival + i);
}

}  // namespace

void draw_shuffle_cuda(const Tensor& keys, int64_t rank, int64_t workers, const Tensor& sent,
                       const OptionalTensor& arrived) {
  const c10::cuda::CUDAGuard guard(keys.device());
  const int64_t local = keys.size(1);
  const ShuffleShape shape{local * workers, sent.size(2) / local, rank, workers};
  if (sent.numel() == 0) return;
  int width = 1;  // about as many threads as a part has tokens
  while (width < kThreads && width * shape.groups < shape.tokens_of_group) width *= 2;
  const int64_t blocks = (local * shape.groups * width + kThreads - 1) / kThreads;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(keys.size(0)));
  draw_kernel<<<grid, kThreads, 0, at::cuda::getCurrentCUDAStream()>>>(
      shape, ShuffleParts(shape), width, keys.const_data_ptr<int64_t>(),
      sent.mutable_data_ptr<int64_t>(), arrived ? arrived->mutable_data_ptr<int64_t>() : nullptr);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace ballast::experts
