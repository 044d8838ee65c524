// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_pipeline.h>

#include <algorithm>

#include "ballast/kernels/layer_norm_paths.h"
#include "ballast/kernels/operations_cuda.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/row_access.h"
#include "ballast/kernels/row_norm_cuda.cuh"

namespace ballast::kernels {
namespace {

using at::Tensor;

// Rows one after another; their norm is that of what is stored: x, or x + change, rounded.
template <typename T>
struct DensePass {
  using Scalar = T;
  struct Row {
    static constexpr bool is_filled = true;
    int64_t begin = 0;
  };
  struct Held {
    static constexpr int kSize = kSizeOf<Scalar>;
    Words words = {}, change = {};
    __device__ RowSum<Scalar> number(int l) const { return kernels::number<Scalar>(words, l); }
  };

  int64_t width;
  const Scalar *x, *change;  // no change: null
  NormVectors<Scalar> of_all;
  Scalar* sum;
  RowSum<Scalar> epsilon;
  bool takes_mean;

  __device__ Row row(int64_t r) const { return {r * width}; }
  __device__ Held load(const Row& row, int i) const {
    return {kernels::load(x + row.begin + i),
            change ? kernels::load(change + row.begin + i) : Words{}};
  }
  __device__ void settle(const Row& row, int i, int width, Held& held) const {
    if (!change) return;
    held.words = sum_of<Scalar>(held.words, held.change);
    if (i < width) store(sum + row.begin + i, held.words);
  }
  __device__ NormVectors<Scalar> vectors(const Row&) const { return of_all; }
};

template <typename Scalar>
struct Backward {
  const Scalar *dnormed, *dsum;  // no dsum: null
  const Scalar *sum, *weight;
  const RowSum<Scalar>*mean, *inverse;
  Scalar* dx;
  // Of each block, for the weight, for the bias and, if it is wanted, for the change's bias, in the
  // order of its threads: see column_of.
  RowSum<Scalar>* partials;  // none wanted: null
  bool takes_mean;
};

// Rows on their way to the threads that compute them: each copies what it needs itself, to places
// of its own in shared memory, so that nobody waits for others.
template <typename Scalar, int kPacks>
struct RowRing {
  static constexpr int kStages = 3;  // rows of a thread: one is computed, others are on their way
  static constexpr int kParts = 3;   // dnormed, sum, dsum
  static constexpr int kBytes = kStages * kParts * kPacks * kThreadsOfRows * 16;

  uint4* memory;
  Rows rows;
  Backward<Scalar> at;

  __device__ uint4* place(int64_t turn, int part, int pack) const {
    const int stage = static_cast<int>(turn % kStages);
    return memory + ((stage * kParts + part) * kPacks + pack) * kThreadsOfRows +
           threadIdx.y * kLanes + threadIdx.x;
  }
  // Whether there is such a row, and it has this pack of the thread.
  __device__ bool has(int64_t row, int pack) const {
    return row < rows.rows && rows.column(pack, kSizeOf<Scalar>) < rows.width;
  }
  // The thread's turn-th row begins to arrive, if it is there. All turns must be begun, in order.
  __device__ void begin(int64_t turn, int64_t row) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!has(row, p)) continue;
      const int64_t from = row * rows.width + rows.column(p, kSizeOf<Scalar>);
      __pipeline_memcpy_async(place(turn, 0, p), at.dnormed + from, 16);
      __pipeline_memcpy_async(place(turn, 1, p), at.sum + from, 16);
      if (at.dsum) __pipeline_memcpy_async(place(turn, 2, p), at.dsum + from, 16);
    }
    __pipeline_commit();
  }
  static __device__ void wait() { __pipeline_wait_prior(kStages - 1); }
  __device__ Words words(int64_t turn, int part, int pack) const {
    const uint4 found = *place(turn, part, pack);
    return {found.x, found.y, found.z, found.w};
  }
};

template <typename Scalar>
__device__ RowStats<RowSum<Scalar>> load_stats(const Rows& rows, const Backward<Scalar>& at,
                                               int64_t row) {
  if (row >= rows.rows) return {};
  return {at.takes_mean ? at.mean[row] : RowSum<Scalar>{0}, at.inverse[row]};
}

// The block's sums of columns: its rows' threads one after another, through shared memory.
template <typename Scalar, int kPacks>
__device__ void store_partials(const Rows& rows, const RowSum<Scalar>* mine, uint4* memory,
                               RowSum<Scalar>* to) {
  constexpr int kColumns = kPacks * kSizeOf<Scalar>;  // of a thread
  auto* const parts = reinterpret_cast<RowSum<Scalar>*>(memory);
  __syncthreads();  // what was there is read
#pragma unroll
  for (int k = 0; k < kColumns; ++k)
    parts[(threadIdx.y * kColumns + k) * kLanes + threadIdx.x] = mine[k];
  __syncthreads();
  const int warp_columns = kColumns * kLanes, columns = rows.warps * warp_columns;
  for (int i = threadIdx.y * kLanes + threadIdx.x; i < columns; i += kThreadsOfRows) {
    RowSum<Scalar> sum = 0;
    for (int r = 0; r < rows.per_block(); ++r) sum += parts[r * columns + i];
    to[i] = sum;
  }
}

// Which column a block's partial sum number i is of.
__device__ int column_of(int i, int warps, int packs, int size) {
  const int lane = i % kLanes, k = i / kLanes % (packs * size), warp = i / (kLanes * packs * size);
  return ((warp + k / size * warps) * kLanes + lane) * size + k % size;
}

// Of the way back that a processor has registers and shared memory for at a time.
constexpr int blocks_at_once(int packs) { return packs <= 3 ? 2 : 1; }

// What a thread keeps from row to row: the weight, and sums of its columns.
template <typename Scalar, int kPacks, bool kSumsChange>
struct ThreadColumns {
  using Sum = RowSum<Scalar>;
  using Ring = RowRing<Scalar, kPacks>;
  static constexpr int kSize = kSizeOf<Scalar>, kCount = kPacks * kSize;

  Words weight[kPacks];
  Sum of_weight[kCount] = {}, of_bias[kCount] = {}, of_change[kSumsChange ? kCount : 1] = {};

  __device__ explicit ThreadColumns(const Ring& ring) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = ring.rows.column(p, kSize);
      weight[p] = i < ring.rows.width ? load(ring.at.weight + i) : Words{};
    }
  }
  __device__ NormedColumn<Sum> column(const RowStats<Sum>& stats, const Words& dnormed,
                                      const Words& sum, int p, int l) const {
    const Sum d = number<Scalar>(dnormed, l);
    return {d, d * number<Scalar>(weight[p], l), stats.centred(number<Scalar>(sum, l))};
  }
  // Adds a row's columns to the sums, and to `along`.
  __device__ void add(const Ring& ring, int64_t turn, int64_t row, const RowStats<Sum>& stats,
                      Sum (&along)[2]) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!ring.has(row, p)) continue;
      const Words dnormed = ring.words(turn, 0, p), sum = ring.words(turn, 1, p);
#pragma unroll
      for (int l = 0; l < kSize; ++l) {
        const NormedColumn<Sum> one = column(stats, dnormed, sum, p, l);
        one.add_along(along);
        one.add_columns(of_weight[p * kSize + l], of_bias[p * kSize + l]);
      }
    }
  }
  // Stores the row's gradient.
  __device__ void store_row(const Ring& ring, int64_t turn, int64_t row, const RowStats<Sum>& stats,
                            const Sum (&means)[2]) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (!ring.has(row, p)) continue;
      const Words dnormed = ring.words(turn, 0, p), sum = ring.words(turn, 1, p),
                  dsum = ring.at.dsum ? ring.words(turn, 2, p) : Words{};
      Sum dx[kSize];
#pragma unroll
      for (int l = 0; l < kSize; ++l) {
        dx[l] = number<Scalar>(dsum, l) + column(stats, dnormed, sum, p, l).gradient(stats, means);
        if constexpr (kSumsChange) of_change[p * kSize + l] += dx[l];
      }
      store(ring.at.dx + row * ring.rows.width + ring.rows.column(p, kSize), rounded<Scalar>(dx));
    }
  }
};

// Blocks go over the rows in turns; the next ones arrive while one is computed.
template <typename Scalar, int kPacks, bool kSumsChange>
__global__ void __launch_bounds__(kThreadsOfRows, blocks_at_once(kPacks))
    norm_rows_backward_kernel(Rows rows, Backward<Scalar> at) {
  using Sum = RowSum<Scalar>;
  using Ring = RowRing<Scalar, kPacks>;
  extern __shared__ uint4 memory[];
  const Ring ring{memory, rows, at};
  ThreadColumns<Scalar, kPacks, kSumsChange> columns(ring);
  const int64_t stride = int64_t{gridDim.x} * rows.per_block();
  int64_t row = int64_t{blockIdx.x} * rows.per_block() + threadIdx.y / rows.warps, turn = 0;
  for (int ahead = 0; ahead < Ring::kStages - 1; ++ahead) ring.begin(ahead, row + ahead * stride);
  RowStats<Sum> stats = load_stats(rows, at, row);
  for (int64_t first = int64_t{blockIdx.x} * rows.per_block(); first < rows.rows; first += stride) {
    ring.begin(turn + Ring::kStages - 1, row + (Ring::kStages - 1) * stride);
    const RowStats<Sum> next = load_stats(rows, at, row + stride);
    Ring::wait();
    Sum along[2] = {0, 0};  // the constant, and the row itself
    columns.add(ring, turn, row, stats, along);
    sum_over_row(along, rows.warps);
    along[0] = at.takes_mean ? along[0] / rows.width : Sum{0};
    along[1] /= rows.width;
    columns.store_row(ring, turn, row, stats, along);
    stats = next;
    row += stride;
    ++turn;
  }
  if (at.partials == nullptr) return;
  __pipeline_wait_prior(0);
  const int count = rows.warps * columns.kCount * kLanes;
  Sum* const to = at.partials + int64_t{blockIdx.x} * (kSumsChange ? 3 : 2) * count;
  store_partials<Scalar, kPacks>(rows, columns.of_weight, memory, to);
  store_partials<Scalar, kPacks>(rows, columns.of_bias, memory, to + count);
  if constexpr (kSumsChange)
    store_partials<Scalar, kPacks>(rows, columns.of_change, memory, to + 2 * count);
}

// What they are added to: null where it is not wanted.
template <typename Scalar>
struct ColumnSums {
  Scalar* sums[3];  // of the weight, of the bias, of the change's bias
};

// Adds all blocks' partial sums to the gradients, in a fixed order.  A block has kLanes columns of
// one of them: number blockIdx.y.
template <typename Scalar>
__global__ void add_partials_kernel(Rows rows, int packs, int blocks,
                                    const RowSum<Scalar>* partials, ColumnSums<Scalar> all) {
  using Sum = RowSum<Scalar>;
  Scalar* const to = all.sums[blockIdx.y];
  if (to == nullptr) return;
  const int columns = static_cast<int>(gridDim.x) * kLanes;
  const int i = blockIdx.x * kLanes + threadIdx.x;
  Sum sum = 0;
#pragma unroll 8
  for (int b = threadIdx.y; b < blocks; b += kWarpsPerBlock)
    sum += partials[(int64_t{b} * gridDim.y + blockIdx.y) * columns + i];
  __shared__ Sum parts[kWarpsPerBlock][kLanes];
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  const int column = column_of(i, rows.warps, packs, kSizeOf<Scalar>);
  if (threadIdx.y > 0 || column >= rows.width) return;
  sum = 0;
  for (int w = 0; w < kWarpsPerBlock; ++w) sum += parts[w][threadIdx.x];
  to[column] = static_cast<Scalar>(static_cast<Sum>(to[column]) + sum);
}

// Whether all are of x's type, whole and on 16-byte boundaries.
bool fits(const Tensor& x, std::initializer_list<const Tensor*> tensors) {
  return std::ranges::all_of(tensors, [&](const Tensor* t) {
    return t->scalar_type() == x.scalar_type() && t->is_contiguous() && is_on_boundary(*t);
  });
}

Tensor empty_stats(const Tensor& x) {
  return x.new_empty({x.size(0), 1}, x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

// Sums of columns take registers, too: a lane has fewer packs than on the way forward, if the row
// can be shared by more warps.
Division division_back(int64_t width, int64_t bytes) {
  const Division forward = division_of(width, bytes);
  const bool is_full = forward.packs == Division::kMostPacks;
  return is_full && forward.warps < kWarpsPerBlock ? Division{2 * forward.warps, forward.packs / 2}
                                                   : forward;
}

template <typename Scalar, int kPacks, bool kSumsChange>
void launch_back(const Rows& rows, int blocks, const Backward<Scalar>& at) {
  constexpr int kBytes = RowRing<Scalar, kPacks>::kBytes;
  const auto kernel = norm_rows_backward_kernel<Scalar, kPacks, kSumsChange>;
  C10_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  kernel<<<blocks, dim3(kLanes, kWarpsPerBlock), kBytes, at::cuda::getCurrentCUDAStream()>>>(rows,
                                                                                             at);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> norm_rows_cuda(const Tensor& given_x,
                                                          const OptionalTensor& given_change,
                                                          const Tensor& weight,
                                                          const OptionalTensor& bias,
                                                          bool takes_mean, double epsilon) {
  const c10::cuda::CUDAGuard guard(given_x.device());
  const Tensor x = given_x.contiguous();
  const auto change = given_change ? std::optional(given_change->contiguous()) : std::nullopt;
  const Division division = division_of(x.size(1), x.element_size());
  if (division.warps == 0 || !is_of_row_type(x) ||
      !fits(x, {&x, change ? &*change : &x, &weight, bias ? &*bias : &weight}))
    return plain_norm_rows(x, change, weight, bias, takes_mean, epsilon);
  Tensor normed = x.new_empty(x.sizes()), sum = change ? x.new_empty(x.sizes()) : Tensor();
  Tensor mean = empty_stats(x), inverse = empty_stats(x);
  const Rows rows{x.size(0), static_cast<int>(x.size(1)), division.warps};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "norm_rows", [&] {
    using Sum = RowSum<scalar_t>;
    const DensePass<scalar_t> pass{
        .width = x.size(1),
        .x = x.const_data_ptr<scalar_t>(),
        .change = data_or_null<scalar_t>(change),
        .of_all = {weight.const_data_ptr<scalar_t>(), data_or_null<scalar_t>(bias)},
        .sum = change ? sum.data_ptr<scalar_t>() : nullptr,
        .epsilon = static_cast<Sum>(epsilon),
        .takes_mean = takes_mean};
    norm_rows(rows, division.packs, pass,
              {normed.data_ptr<scalar_t>(), mean.data_ptr<Sum>(), inverse.data_ptr<Sum>()},
              at::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {sum, normed, mean, inverse};
}

Tensor norm_rows_backward_cuda(const Tensor& given_dnormed, const OptionalTensor& given_dsum,
                               const Tensor& given_sum, const Tensor& mean, const Tensor& inverse,
                               const Tensor& weight, const OptionalTensor& weight_sum,
                               const OptionalTensor& bias_sum, bool takes_mean,
                               const OptionalTensor& change_sum) {
  const c10::cuda::CUDAGuard guard(given_sum.device());
  const Tensor dnormed = given_dnormed.contiguous(), sum = given_sum.contiguous();
  const auto dsum = given_dsum ? std::optional(given_dsum->contiguous()) : std::nullopt;
  const Division division = division_back(sum.size(1), sum.element_size());
  if (division.warps == 0 || !is_of_row_type(sum) ||
      !fits(sum, {&dnormed, dsum ? &*dsum : &sum, &sum, &weight, weight_sum ? &*weight_sum : &sum,
                  bias_sum ? &*bias_sum : &sum, change_sum ? &*change_sum : &sum}))
    return plain_norm_rows_backward(dnormed, dsum, sum, mean, inverse, weight, weight_sum, bias_sum,
                                    takes_mean, change_sum);
  Tensor dx = sum.new_empty(sum.sizes());
  const Rows rows{sum.size(0), static_cast<int>(sum.size(1)), division.warps};
  if (rows.rows == 0) return dx;
  const int at_once =
      at::cuda::getCurrentDeviceProperties()->multiProcessorCount * blocks_at_once(division.packs);
  const auto blocks = std::min(static_cast<int>(rows.blocks()), at_once);
  const int chunks = static_cast<int>(division.warps * division.packs * 16 / sum.element_size());
  const bool wanted = weight_sum || bias_sum || change_sum;
  const int sums = change_sum ? 3 : 2;
  const Tensor partials = wanted ? mean.new_empty({blocks, sums, chunks, kLanes}) : Tensor();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, sum.scalar_type(), "norm_rows_backward", [&] {
    using Sum = RowSum<scalar_t>;
    const Backward<scalar_t> at{dnormed.const_data_ptr<scalar_t>(),
                                data_or_null<scalar_t>(dsum),
                                sum.const_data_ptr<scalar_t>(),
                                weight.const_data_ptr<scalar_t>(),
                                mean.const_data_ptr<Sum>(),
                                inverse.const_data_ptr<Sum>(),
                                dx.data_ptr<scalar_t>(),
                                wanted ? partials.data_ptr<Sum>() : nullptr,
                                takes_mean};
    with_packs(division.packs, [&](auto packs) {
      change_sum ? launch_back<scalar_t, packs(), true>(rows, blocks, at)
                 : launch_back<scalar_t, packs(), false>(rows, blocks, at);
    });
    if (!wanted) return;
    const auto place = [](const OptionalTensor& of) {
      return of ? of->data_ptr<scalar_t>() : nullptr;
    };
    add_partials_kernel<scalar_t>
        <<<dim3(chunks, sums), dim3(kLanes, kWarpsPerBlock), 0, at::cuda::getCurrentCUDAStream()>>>(
            rows, division.packs, blocks, at.partials,
            {{place(weight_sum), place(bias_sum), place(change_sum)}});
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return dx;
}

}  // namespace ballast::kernels
