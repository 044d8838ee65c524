// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_pipeline.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ballast/kernels/operations_cuda.h"
#include "ballast/kernels/row_packs_cuda.cuh"

namespace ballast::kernels {
namespace {

using at::Tensor;

constexpr int kMostThreads = 512;
constexpr int kMostKept = 110 * 1024;  // bytes of a row in shared memory: two blocks fit
constexpr int kStages = 4;             // a kept row arrives in as many parts

__device__ float exponential(float x) {  // to two units in the last place, 0 below 2^-126
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
}
__device__ double exponential(double x) { return exp(x); }

// A maximum and the sum of exponentials relative to it. Nothing yet: the lowest number and 0, so
// that differences of maxima are never those of two infinities.
template <typename T>
struct MaxAndSum {
  T maximum = std::numeric_limits<T>::lowest(), sum = 0;

  __device__ void raise(T to) {
    sum *= exponential(maximum - to);
    maximum = to;
  }
};

// Every lane gets the result of all, the same bits every time.
template <typename T>
__device__ MaxAndSum<T> merge_over_warp(MaxAndSum<T> mine) {
  T maximum = mine.maximum;
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    maximum = max(maximum, __shfl_xor_sync(0xffffffffu, maximum, distance));
  mine.raise(maximum);
  mine.sum = sum_over_warp(mine.sum);
  return mine;
}

template <typename T>
__device__ MaxAndSum<T> merge_over_block(MaxAndSum<T> mine) {
  __shared__ T maxima[kLanes], sums[kLanes];
  const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  mine = merge_over_warp(mine);
  if (lane == 0) {
    maxima[warp] = mine.maximum;
    sums[warp] = mine.sum;
  }
  __syncthreads();
  MaxAndSum<T> of_warp;
  if (lane < blockDim.x / kLanes) {
    of_warp.maximum = maxima[lane];
    of_warp.sum = sums[lane];
  }
  return merge_over_warp(of_warp);
}

// A row of whatever address: packs of 16 bytes, and fewer than a pack before and after them, the
// rest, one of which a thread may have.
template <typename Scalar>
struct Row {
  static constexpr int kSize = 16 / sizeof(Scalar);
  using Whole = Pack<Scalar, kSize>;

  Scalar* values;
  int before, packs, rest;

  __device__ Row(Scalar* row, int size) : values(row) {
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(Scalar));
    before = min(size, past == 0 ? 0 : kSize - past);
    packs = (size - before) / kSize;
    rest = size - packs * kSize;
  }
  __device__ Whole* pack(int p) const { return reinterpret_cast<Whole*>(values + before) + p; }
  __device__ int place_in_rest(int i) const { return i < before ? i : i + packs * kSize; }
};

template <typename Scalar>
__device__ void add(MaxAndSum<RowSum<Scalar>>& all, const typename Row<Scalar>::Whole& pack) {
  using T = RowSum<Scalar>;
  constexpr int kSize = Row<Scalar>::kSize;
  T values[kSize], sum = 0, largest = all.maximum;
#pragma unroll
  for (int l = 0; l < kSize; ++l) {
    values[l] = static_cast<T>(pack.values[l]);
    largest = max(largest, values[l]);
  }
  if (largest > all.maximum) all.raise(largest);
#pragma unroll
  for (int l = 0; l < kSize; ++l) sum += exponential(values[l] - all.maximum);
  all.sum += sum;
}

// This thread's packs, copied to `kept` while those that have arrived are summed. Nobody else reads
// them there.
template <typename Scalar>
__device__ void add_and_keep(MaxAndSum<RowSum<Scalar>>& all, const Row<Scalar>& row,
                             typename Row<Scalar>::Whole* kept) {
  const int threads = blockDim.x;
  const int stage = (row.packs + threads * kStages - 1) / (threads * kStages) * threads;
#pragma unroll
  for (int s = 0; s < kStages; ++s) {
    const int end = min(row.packs, (s + 1) * stage);
    for (int p = s * stage + threadIdx.x; p < end; p += threads)
      __pipeline_memcpy_async(kept + p, row.pack(p), 16);
    __pipeline_commit();
  }
#pragma unroll
  for (int s = 0; s < kStages; ++s) {
    __pipeline_wait_prior(kStages - 1 - s);
    const int end = min(row.packs, (s + 1) * stage);
    for (int p = s * stage + threadIdx.x; p < end; p += threads) add<Scalar>(all, kept[p]);
  }
}

// One block a row: losses[row] = log sum exp - logit[target]; the row becomes its gradient.
// kKeeps: the row is read once, into shared memory.
template <typename Scalar, bool kKeeps>
__global__ __launch_bounds__(kMostThreads, 2) void softmax_cross_entropy_kernel(
    Scalar* logits, const int64_t* targets, RowSum<Scalar>* losses, int vocabulary,
    RowSum<Scalar> scale) {
  using T = RowSum<Scalar>;
  using Whole = typename Row<Scalar>::Whole;
  constexpr int kSize = Row<Scalar>::kSize;
  extern __shared__ uint4 shared[];
  auto* kept = reinterpret_cast<Whole*>(shared);
  const Row<Scalar> row(logits + int64_t{blockIdx.x} * vocabulary, vocabulary);
  const int threads = blockDim.x, mine = threadIdx.x;
  const bool has_rest = mine < row.rest;
  Scalar* const rest = row.values + (has_rest ? row.place_in_rest(mine) : 0);
  const int64_t target = targets[blockIdx.x];
  if (target < 0) {
    for (int p = mine; p < row.packs; p += threads) *row.pack(p) = Whole{};
    if (has_rest) *rest = Scalar(0);
    if (mine == 0) losses[blockIdx.x] = 0;
    return;
  }
  CUDA_KERNEL_ASSERT(target < vocabulary);
  const Scalar* const at = row.values + target;
  const T at_target = static_cast<T>(*at);
  MaxAndSum<T> all;
  if constexpr (kKeeps) {
    add_and_keep(all, row, kept);
  } else {
#pragma unroll 4
    for (int p = mine; p < row.packs; p += threads) add<Scalar>(all, *row.pack(p));
  }
  if (has_rest) {
    const T value = static_cast<T>(*rest);
    if (value > all.maximum) all.raise(value);
    all.sum += exponential(value - all.maximum);
  }
  all = merge_over_block(all);  // also: everyone has read the target before it is overwritten
  const T factor = scale / all.sum;
  const auto softmax = [&](Scalar logit) {
    return exponential(static_cast<T>(logit) - all.maximum) * factor;
  };
  const int in_packs = static_cast<int>(target) - row.before;
#pragma unroll 2
  for (int p = mine; p < row.packs; p += threads) {
    Whole pack = kKeeps ? kept[p] : *row.pack(p);
    T gradient[kSize];
#pragma unroll
    for (int l = 0; l < kSize; ++l) gradient[l] = softmax(pack.values[l]);
    const int of_pack = in_packs - p * kSize;
    if (of_pack >= 0 && of_pack < kSize) {
#pragma unroll
      for (int l = 0; l < kSize; ++l) gradient[l] -= l == of_pack ? scale : 0;
    }
#pragma unroll
    for (int l = 0; l < kSize; ++l) pack.values[l] = static_cast<Scalar>(gradient[l]);
    *row.pack(p) = pack;
  }
  if (has_rest) *rest = static_cast<Scalar>(softmax(*rest) - (rest == at ? scale : 0));
  if (mine == 0) losses[blockIdx.x] = log(all.sum) + (all.maximum - at_target);
}

template <typename Scalar, bool kKeeps>
void launch(Tensor& logits, const Tensor& targets, double scale, const Tensor& losses) {
  const auto vocabulary = static_cast<int>(logits.size(1));
  const int packs = vocabulary / Row<Scalar>::kSize;
  // Four packs a thread or more; whole warps, and one at least, which may have the rest.
  const int threads = std::clamp((packs / 4 + kLanes - 1) / kLanes * kLanes, kLanes, kMostThreads);
  const int bytes = kKeeps ? packs * 16 : 0;
  const auto kernel = softmax_cross_entropy_kernel<Scalar, kKeeps>;
  if constexpr (kKeeps) {
    C10_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostKept));
  }
  kernel<<<static_cast<unsigned>(logits.size(0)), threads, bytes,
           at::cuda::getCurrentCUDAStream()>>>(
      logits.data_ptr<Scalar>(), targets.const_data_ptr<int64_t>(),
      losses.data_ptr<RowSum<Scalar>>(), vocabulary, static_cast<RowSum<Scalar>>(scale));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void softmax_cross_entropy_cuda_(Tensor& logits, const Tensor& targets, double scale,
                                 const Tensor& losses) {
  const c10::cuda::CUDAGuard guard(logits.device());
  TORCH_CHECK(logits.size(1) <= std::numeric_limits<int>::max() &&
                  logits.size(0) <= std::numeric_limits<int>::max(),
              "softmax_cross_entropy_: too many logits, ", logits.sizes());
  if (logits.numel() == 0) return;
  AT_DISPATCH_FLOATING_TYPES_AND(
      at::kBFloat16, logits.scalar_type(), "softmax_cross_entropy_", [&] {
        const int64_t bytes = logits.size(1) * static_cast<int64_t>(sizeof(scalar_t));
        bytes <= kMostKept ? launch<scalar_t, true>(logits, targets, scale, losses)
                           : launch<scalar_t, false>(logits, targets, scale, losses);
      });
}

}  // namespace ballast::kernels
