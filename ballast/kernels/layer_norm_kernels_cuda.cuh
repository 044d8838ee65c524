// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ballast/kernels/layer_norm_paths.h"
#include "ballast/kernels/row_packs_cuda.cuh"

namespace ballast {
namespace {

constexpr int kThreads = kLanes * kWarpsPerBlock;
constexpr int kMostPacks = 4;  // that a lane holds of a row: more would not fit into its registers

// Elements in one access of 16 bytes.
template <typename Scalar>
constexpr int kSizeOf = 16 / sizeof(Scalar);

// 16 bytes of a row as they are held in registers: elements of 2 bytes would take a register each.
struct Words {
  uint32_t values[4];
};

template <typename Scalar>
__device__ Words load(const Scalar* from) {
  const uint4 words = *reinterpret_cast<const uint4*>(from);
  return {words.x, words.y, words.z, words.w};
}
template <typename Scalar>
__device__ void store(Scalar* to, const Words& words) {
  *reinterpret_cast<uint4*>(to) =
      make_uint4(words.values[0], words.values[1], words.values[2], words.values[3]);
}

// Element l, to compute with.
template <typename Scalar>
__device__ RowSum<Scalar> number(const Words& words, int l) {
  if constexpr (std::is_same_v<Scalar, double>) {
    return __hiloint2double(words.values[2 * l + 1], words.values[2 * l]);
  } else if constexpr (std::is_same_v<Scalar, float>) {
    return __uint_as_float(words.values[l]);
  } else {  // bf16 is the upper half of fp32
    const uint32_t word = words.values[l / 2];
    return __uint_as_float(l % 2 == 0 ? word << 16 : word & 0xffff0000u);
  }
}
template <typename Scalar>
__device__ Words rounded(const RowSum<Scalar> (&numbers)[kSizeOf<Scalar>]) {
  Pack<Scalar, kSizeOf<Scalar>> pack;
#pragma unroll
  for (int l = 0; l < kSizeOf<Scalar>; ++l) pack.values[l] = static_cast<Scalar>(numbers[l]);
  Words words;
  memcpy(&words, &pack, sizeof words);
  return words;
}

// Numbers made of these words are made anew: kept from one loop for the next they take registers.
__device__ void forget_numbers(Words& words) {
  for (uint32_t& word : words.values) asm volatile("" : "+r"(word));
}

// Rows of a width, each of which `warps` warps of a block share: 1, 2, 4 or 8, as many as it needs.
struct Rows {
  int64_t rows;
  int width, warps;

  __host__ __device__ int per_block() const { return kWarpsPerBlock / warps; }
  // Where a lane's pack number `pack` begins, for the size of a pack.
  __device__ int column(int pack, int size) const {
    const int lane = (threadIdx.y % warps + pack * warps) * kLanes + threadIdx.x;
    return lane * size;
  }
};

// Each of the numbers, summed over the threads of a row, in a fixed order. All of the block call
// it.
template <typename Sum, int kCount>
__device__ void sum_over_row(Sum (&numbers)[kCount], int warps) {
  for (Sum& number : numbers) number = sum_over_warp(number);
  if (warps == 1) return;
  __shared__ Sum parts[kCount][kWarpsPerBlock];
  __syncthreads();  // parts of the last call are read
  if (threadIdx.x == 0) {
    for (int k = 0; k < kCount; ++k) parts[k][threadIdx.y] = numbers[k];
  }
  __syncthreads();
  const int first = threadIdx.y / warps * warps;
  for (int k = 0; k < kCount; ++k) {
    numbers[k] = 0;
    for (int w = 0; w < warps; ++w) numbers[k] += parts[k][first + w];
  }
}

template <typename Scalar>
struct Forward {
  const Scalar *x, *change;  // no change: null
  const Scalar *weight, *bias;
  Scalar *sum, *normed;
  RowSum<Scalar>*mean, *inverse;
};

template <typename Scalar, int kPacks>
__global__ void __launch_bounds__(kThreads) norm_rows_kernel(Rows rows, Forward<Scalar> at) {
  using Sum = RowSum<Scalar>;
  constexpr int kSize = kSizeOf<Scalar>;
  const int64_t row = int64_t{blockIdx.x} * rows.per_block() + threadIdx.y / rows.warps;
  const int64_t begin = row * rows.width;
  // A row that is not there has no columns: its threads only take part in what all must.
  const int width = row < rows.rows ? rows.width : 0;

  Words x[kPacks], change[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int i = rows.column(p, kSize);
    x[p] = i < width ? load(at.x + begin + i) : Words{};
    change[p] = i < width && at.change ? load(at.change + begin + i) : Words{};
  }
  Sum total[1] = {0}, squares[1] = {0};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int i = rows.column(p, kSize);
    if (at.change) {
      Sum sums[kSize];
#pragma unroll
      for (int l = 0; l < kSize; ++l)
        sums[l] = number<Scalar>(x[p], l) + number<Scalar>(change[p], l);
      x[p] = rounded<Scalar>(sums);  // the norm is that of what is stored
      if (i < width) store(at.sum + begin + i, x[p]);
    }
#pragma unroll
    for (int l = 0; l < kSize; ++l) total[0] += number<Scalar>(x[p], l);
  }
  sum_over_row(total, rows.warps);
  const Sum mean = total[0] / rows.width;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (rows.column(p, kSize) >= width) continue;
#pragma unroll
    for (int l = 0; l < kSize; ++l) {
      const Sum centred = number<Scalar>(x[p], l) - mean;
      squares[0] += centred * centred;
    }
  }
  sum_over_row(squares, rows.warps);
  const Sum inverse = rsqrt(squares[0] / rows.width + static_cast<Sum>(kNormEpsilon));
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int i = rows.column(p, kSize);
    if (i >= width) continue;
    const Words weight = load(at.weight + i), bias = load(at.bias + i);
    Sum normed[kSize];
#pragma unroll
    for (int l = 0; l < kSize; ++l) {
      const Sum centred = (number<Scalar>(x[p], l) - mean) * inverse;
      normed[l] = centred * number<Scalar>(weight, l) + number<Scalar>(bias, l);
    }
    store(at.normed + begin + i, rounded<Scalar>(normed));
  }
  if (width > 0 && rows.column(0, kSize) == 0) {
    at.mean[row] = mean;
    at.inverse[row] = inverse;
  }
}

template <typename Scalar>
struct Backward {
  const Scalar *dnormed, *dsum;  // no dsum: null
  const Scalar *sum, *weight;
  const RowSum<Scalar>*mean, *inverse;
  Scalar* dx;
  // Of each block, for the weight and then for the bias, in the order of its threads: see
  // column_of.
  RowSum<Scalar>* partials;  // none wanted: null
};

// What a thread has of a row on the way back.
template <typename Scalar, int kPacks>
struct RowBack {
  Words dnormed[kPacks], dsum[kPacks], sum[kPacks];
  RowSum<Scalar> mean, inverse;
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
  result.mean = width > 0 ? at.mean[row] : RowSum<Scalar>{0};
  result.inverse = width > 0 ? at.inverse[row] : RowSum<Scalar>{0};
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
  for (int i = threadIdx.y * kLanes + threadIdx.x; i < columns; i += kThreads) {
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
__global__ void __launch_bounds__(kThreads, blocks_at_once(kPacks))
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
        const Sum d = number<Scalar>(now.dnormed[p], l);
        const Sum centred = (number<Scalar>(now.sum[p], l) - now.mean) * now.inverse;
        const Sum scaled = d * number<Scalar>(weight[p], l);
        along[0] += scaled;
        along[1] += scaled * centred;
        dweight[p * kSize + l] += d * centred;
        dbias[p * kSize + l] += d;
      }
    }
    sum_over_row(along, rows.warps);
    along[0] /= rows.width;
    along[1] /= rows.width;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = rows.column(p, kSize);
      if (row >= rows.rows || i >= rows.width) continue;
      forget_numbers(now.dnormed[p]);
      forget_numbers(now.sum[p]);
      Sum dx[kSize];
#pragma unroll
      for (int l = 0; l < kSize; ++l) {
        const Sum centred = (number<Scalar>(now.sum[p], l) - now.mean) * now.inverse;
        const Sum scaled = number<Scalar>(now.dnormed[p], l) * number<Scalar>(weight[p], l);
        dx[l] =
            number<Scalar>(now.dsum[p], l) + now.inverse * (scaled - along[0] - centred * along[1]);
      }
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

}  // namespace
}  // namespace ballast
