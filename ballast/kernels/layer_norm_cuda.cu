// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <algorithm>

#include "ballast/kernels/layer_norm_paths.h"
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
  // Of each block, for the weight and then for the bias, in the order of its threads: see
  // column_of.
  RowSum<Scalar>* partials;  // none wanted: null
  bool takes_mean;
};

// What a thread has of a row on the way back.
template <typename Scalar, int kPacks>
struct RowBack {
  Words dnormed[kPacks], dsum[kPacks], sum[kPacks];
  RowStats<RowSum<Scalar>> stats;

  __device__ NormedColumn<RowSum<Scalar>> column(int p, int l, const Words& weight) const {
    const RowSum<Scalar> d = number<Scalar>(dnormed[p], l);
    return {d, d * number<Scalar>(weight, l), stats.centred(number<Scalar>(sum[p], l))};
  }
};

template <typename Scalar, int kPacks>
__device__ RowBack<Scalar, kPacks> load_row(const Rows& rows, const Backward<Scalar>& at,
                                            int64_t row) {
  RowBack<Scalar, kPacks> result;
  const int64_t begin = row * rows.width;
  const int width = row < rows.rows ? rows.width : 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int i = rows.column(p, kSizeOf<Scalar>);
    result.dnormed[p] = i < width ? load(at.dnormed + begin + i) : Words{};
    result.sum[p] = i < width ? load(at.sum + begin + i) : Words{};
    result.dsum[p] = i < width && at.dsum ? load(at.dsum + begin + i) : Words{};
  }
  result.stats.mean = width > 0 && at.takes_mean ? at.mean[row] : RowSum<Scalar>{0};
  result.stats.inverse = width > 0 ? at.inverse[row] : RowSum<Scalar>{0};
  return result;
}

// The block's sums of columns: its rows' threads one after another, through shared memory.
template <typename Scalar, int kPacks>
__device__ void store_partials(const Rows& rows, const RowSum<Scalar>* mine, RowSum<Scalar>* to) {
  constexpr int kColumns = kPacks * kSizeOf<Scalar>;  // of a thread
  __shared__ RowSum<Scalar> parts[kWarpsPerBlock][kColumns][kLanes];
  __syncthreads();  // parts of the last call are read
#pragma unroll
  for (int k = 0; k < kColumns; ++k) parts[threadIdx.y][k][threadIdx.x] = mine[k];
  __syncthreads();
  const int warp_columns = kColumns * kLanes, columns = rows.warps * warp_columns;
  const RowSum<Scalar>* const flat = &parts[0][0][0];
  for (int i = threadIdx.y * kLanes + threadIdx.x; i < columns; i += kThreadsOfRows) {
    RowSum<Scalar> sum = 0;
    for (int r = 0; r < rows.per_block(); ++r) sum += flat[r * columns + i];
    to[i] = sum;
  }
}

// Which column a block's partial sum number i is of.
__device__ int column_of(int i, int warps, int packs, int size) {
  const int lane = i % kLanes, k = i / kLanes % (packs * size), warp = i / (kLanes * packs * size);
  return ((warp + k / size * warps) * kLanes + lane) * size + k % size;
}

// Of the way back that a processor has registers for at a time.
constexpr int blocks_at_once(int packs) { return packs <= 2 ? 2 : 1; }

// Blocks go over the rows in turns; each loads its next ones while it computes.
template <typename Scalar, int kPacks>
__global__ void __launch_bounds__(kThreadsOfRows, blocks_at_once(kPacks))
    norm_rows_backward_kernel(Rows rows, Backward<Scalar> at) {
  using Sum = RowSum<Scalar>;
  constexpr int kSize = kSizeOf<Scalar>;
  Words weight[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int i = rows.column(p, kSize);
    weight[p] = i < rows.width ? load(at.weight + i) : Words{};
  }
  Sum dweight[kPacks * kSize] = {}, dbias[kPacks * kSize] = {};
  const int64_t stride = int64_t{gridDim.x} * rows.per_block();
  int64_t row = int64_t{blockIdx.x} * rows.per_block() + threadIdx.y / rows.warps;
  RowBack<Scalar, kPacks> now = load_row<Scalar, kPacks>(rows, at, row);
  for (int64_t first = int64_t{blockIdx.x} * rows.per_block(); first < rows.rows; first += stride) {
    const RowBack<Scalar, kPacks> next = load_row<Scalar, kPacks>(rows, at, row + stride);
    Sum along[2] = {0, 0};  // the constant, and the row itself
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int l = 0; l < kSize; ++l) {
        const NormedColumn<Sum> column = now.column(p, l, weight[p]);
        column.add_along(along);
        column.add_columns(dweight[p * kSize + l], dbias[p * kSize + l]);
      }
    }
    sum_over_row(along, rows.warps);
    along[0] = at.takes_mean ? along[0] / rows.width : Sum{0};
    along[1] /= rows.width;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = rows.column(p, kSize);
      if (row >= rows.rows || i >= rows.width) continue;
      forget_numbers(now.dnormed[p]);
      forget_numbers(now.sum[p]);
      Sum dx[kSize];
#pragma unroll
      for (int l = 0; l < kSize; ++l)
        dx[l] =
            number<Scalar>(now.dsum[p], l) + now.column(p, l, weight[p]).gradient(now.stats, along);
      store(at.dx + row * rows.width + i, rounded<Scalar>(dx));
    }
    now = next;
    row += stride;
  }
  if (at.partials == nullptr) return;
  const int columns = rows.warps * kPacks * kSize * kLanes;
  Sum* const to = at.partials + int64_t{blockIdx.x} * 2 * columns;
  store_partials<Scalar, kPacks>(rows, dweight, to);
  store_partials<Scalar, kPacks>(rows, dbias, to + columns);
}

// Adds all blocks' partial sums to the gradients, in a fixed order.  A block has kLanes columns of
// the weight (blockIdx.y 0) or of the bias (1).
template <typename Scalar>
__global__ void add_partials_kernel(Rows rows, int packs, int blocks,
                                    const RowSum<Scalar>* partials, Scalar* weight_sum,
                                    Scalar* bias_sum) {
  using Sum = RowSum<Scalar>;
  Scalar* const to = blockIdx.y == 0 ? weight_sum : bias_sum;
  if (to == nullptr) return;
  const int columns = static_cast<int>(gridDim.x) * kLanes;
  const int i = blockIdx.x * kLanes + threadIdx.x;
  Sum sum = 0;
#pragma unroll 8
  for (int b = threadIdx.y; b < blocks; b += kWarpsPerBlock)
    sum += partials[(int64_t{b} * 2 + blockIdx.y) * columns + i];
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
  return at::empty({x.size(0), 1},
                   x.options().dtype(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
}

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
  Tensor normed = at::empty_like(x), sum = change ? at::empty_like(x) : Tensor();
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
                               const OptionalTensor& bias_sum, bool takes_mean) {
  const c10::cuda::CUDAGuard guard(given_sum.device());
  const Tensor dnormed = given_dnormed.contiguous(), sum = given_sum.contiguous();
  const auto dsum = given_dsum ? std::optional(given_dsum->contiguous()) : std::nullopt;
  const Division division = division_of(sum.size(1), sum.element_size());
  if (division.warps == 0 || !is_of_row_type(sum) ||
      !fits(sum, {&dnormed, dsum ? &*dsum : &sum, &sum, &weight, weight_sum ? &*weight_sum : &sum,
                  bias_sum ? &*bias_sum : &sum}))
    return plain_norm_rows_backward(dnormed, dsum, sum, mean, inverse, weight, weight_sum, bias_sum,
                                    takes_mean);
  Tensor dx = at::empty_like(sum);
  const Rows rows{sum.size(0), static_cast<int>(sum.size(1)), division.warps};
  if (rows.rows == 0) return dx;
  const int at_once =
      at::cuda::getCurrentDeviceProperties()->multiProcessorCount * blocks_at_once(division.packs);
  const auto blocks = std::min(static_cast<int>(rows.blocks()), at_once);
  const int chunks = static_cast<int>(division.warps * division.packs * 16 / sum.element_size());
  const bool wanted = weight_sum || bias_sum;
  const Tensor partials =
      wanted ? at::empty({blocks, 2, chunks, kLanes}, mean.options()) : Tensor();
  const auto stream = at::cuda::getCurrentCUDAStream();
  const dim3 block(kLanes, kWarpsPerBlock);
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
      norm_rows_backward_kernel<scalar_t, packs()><<<blocks, block, 0, stream>>>(rows, at);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    if (!wanted) return;
    add_partials_kernel<scalar_t><<<dim3(chunks, 2), block, 0, stream>>>(
        rows, division.packs, blocks, at.partials,
        weight_sum ? weight_sum->data_ptr<scalar_t>() : nullptr,
        bias_sum ? bias_sum->data_ptr<scalar_t>() : nullptr);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return dx;
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) {
  library.impl("norm_rows", norm_rows_cuda);
  library.impl("norm_rows_backward", norm_rows_backward_cuda);
}

}  // namespace ballast::kernels
