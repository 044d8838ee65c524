// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <type_traits>

#include "ballast/kernels/held_rows_cuda.cuh"

// LayerNorm and RMSNorm of rows, be they dense ones or the slots of experts: the arithmetic of a
// row stands here. Which rows there are, what is read of them and what is kept is the caller's to
// say.
namespace ballast::kernels {

// A row's mean (0: none is taken) and 1 / deviation.
template <typename Sum>
struct RowStats {
  Sum mean, inverse;

  __device__ Sum centred(Sum x) const { return (x - mean) * inverse; }
};

template <typename Scalar>
struct NormVectors {
  const Scalar *weight, *bias;  // no bias: null
};

template <typename Scalar>
struct NormedRows {
  Scalar* normed;                 // [rows, width]
  RowSum<Scalar>*mean, *inverse;  // [rows]
};

// Of a row that its threads hold, in packs; `own`: the sum of those of this thread.
template <typename Sum, typename Held, int kPacks>
__device__ RowStats<Sum> stats_of(const Rows& rows, const Held (&held)[kPacks], int width, Sum own,
                                  bool takes_mean, Sum epsilon) {
  Sum total[1] = {own}, squares[1] = {0};
  if (takes_mean) sum_over_row(total, rows.warps);
  const Sum mean = takes_mean ? total[0] / rows.width : Sum{0};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (rows.column(p, Held::kSize) >= width) continue;
#pragma unroll
    for (int l = 0; l < Held::kSize; ++l) {
      const Sum centred = held[p].number(l) - mean;
      squares[0] += centred * centred;
    }
  }
  sum_over_row(squares, rows.warps);
  return {mean, rsqrt(squares[0] / rows.width + epsilon)};
}

// One pass over rows. A Pass has
//   Scalar        the type of the numbers; epsilon, and takes_mean (false: RMSNorm)
//   Row           one of the rows: is_filled (false: nobody's, of which the norm is zeros)
//   row(r)        the Row of this number
//   load(row, i)  the pack at column i: a Held, whose number(l) are normed. Held{} has zeros
//   settle(row, i, width, held)  makes that what is normed; stores what is to be kept, if i < width
//   vectors(row)  its NormVectors
template <typename Pass, int kPacks>
__global__ void __launch_bounds__(kThreadsOfRows)
    norm_rows_kernel(Rows rows, Pass pass, NormedRows<typename Pass::Scalar> to) {
  using Scalar = typename Pass::Scalar;
  using Held = typename Pass::Held;
  using Sum = RowSum<Scalar>;
  constexpr int kSize = Held::kSize;
  const int64_t r = int64_t{blockIdx.x} * rows.per_block() + threadIdx.y / rows.warps;
  // A row that is not there has no columns: its threads only take part in what all must.
  const bool is_there = r < rows.rows;
  const typename Pass::Row row = is_there ? pass.row(r) : typename Pass::Row{};
  const int width = is_there && row.is_filled ? rows.width : 0;
  Held held[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int i = rows.column(p, kSize);
    held[p] = i < width ? pass.load(row, i) : Held{};
  }
  Sum own = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    pass.settle(row, rows.column(p, kSize), width, held[p]);
#pragma unroll
    for (int l = 0; l < kSize; ++l) own += held[p].number(l);
  }
  RowStats<Sum> stats = stats_of<Sum>(rows, held, width, own, pass.takes_mean, pass.epsilon);
  if (!is_there) return;
  Scalar* const normed_row = to.normed + r * rows.width;
  if (!row.is_filled) stats = {};
  const NormVectors<Scalar> vectors = pass.vectors(row);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int i = rows.column(p, kSize);
    if (i >= rows.width) continue;
    const Words weight = load(vectors.weight + i),
                bias = vectors.bias ? load(vectors.bias + i) : Words{};
    Sum normed[kSize];
#pragma unroll
    for (int l = 0; l < kSize; ++l)
      normed[l] =
          stats.centred(held[p].number(l)) * number<Scalar>(weight, l) + number<Scalar>(bias, l);
    store(normed_row + i, row.is_filled ? rounded<Scalar>(normed) : Words{});
  }
  if (rows.column(0, kSize) == 0) {
    to.mean[r] = stats.mean;
    to.inverse[r] = stats.inverse;
  }
}

// A column of a row on the way back. Its gradient needs two means over the row, which are summed up
// first: along the constant, and along the row itself.
template <typename Sum>
struct NormedColumn {
  Sum d;        // the gradient by what the norm made
  Sum scaled;   // d times the weight
  Sum centred;  // as the norm had it, before weight and bias

  __device__ void add_along(Sum* along) const {
    along[0] += scaled;
    along[1] += scaled * centred;
  }
  __device__ void add_columns(Sum& of_weight, Sum& of_bias) const {
    of_weight += d * centred;
    of_bias += d;
  }
  // `means`: what add_along summed up, divided by the width; RMSNorm's first is 0.
  __device__ Sum gradient(const RowStats<Sum>& stats, const Sum* means) const {
    return stats.inverse * (scaled - means[0] - centred * means[1]);
  }
};

// How rows of `width` elements of `bytes` are divided; no warps: the kernels do not take them.
struct Division {
  static constexpr int kMostPacks = 4;  // that a lane holds: more would not fit into its registers
  int warps = 0, packs = 0;
};
inline Division division_of(int64_t width, int64_t bytes) {
  if (width == 0 || width * bytes % 16 != 0) return {};
  const int64_t packs = (width * bytes / 16 + kLanes - 1) / kLanes;  // of a lane, if alone
  for (int warps = 1; warps <= kWarpsPerBlock; warps *= 2) {
    const int64_t share = (packs + warps - 1) / warps;
    if (share <= Division::kMostPacks) return {warps, static_cast<int>(share)};
  }
  return {};
}

// Calls work with the number of packs a lane has, at compile time.
template <typename Work>
void with_packs(int packs, const Work& work) {
  packs == 1   ? work(std::integral_constant<int, 1>())
  : packs == 2 ? work(std::integral_constant<int, 2>())
  : packs == 3 ? work(std::integral_constant<int, 3>())
               : work(std::integral_constant<int, 4>());
}

// Norms all rows of a pass. REQUIRES: the division has warps.
template <typename Pass>
void norm_rows(const Rows& rows, int packs, const Pass& pass,
               const NormedRows<typename Pass::Scalar>& to, cudaStream_t stream) {
  if (rows.rows == 0) return;
  with_packs(packs, [&](auto held) {
    norm_rows_kernel<Pass, held()>
        <<<rows.blocks(), dim3(kLanes, kWarpsPerBlock), 0, stream>>>(rows, pass, to);
  });
}

}  // namespace ballast::kernels
