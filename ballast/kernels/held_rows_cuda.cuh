// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ballast/kernels/row_packs_cuda.cuh"

namespace ballast::kernels {

// For kernels that hold rows in registers, one or several warps of a block for each.

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

template <typename Scalar>
__device__ Words sum_of(const Words& a, const Words& b) {
  RowSum<Scalar> sums[kSizeOf<Scalar>];
#pragma unroll
  for (int l = 0; l < kSizeOf<Scalar>; ++l) sums[l] = number<Scalar>(a, l) + number<Scalar>(b, l);
  return rounded<Scalar>(sums);
}

constexpr int kThreadsOfRows = kLanes * kWarpsPerBlock;

// Rows of a width, each of which `warps` warps of a block share: 1, 2, 4 or 8, as many as it needs.
struct Rows {
  int64_t rows;
  int width, warps;

  __host__ __device__ int per_block() const { return kWarpsPerBlock / warps; }
  unsigned blocks() const {  // that hold all rows at once
    return static_cast<unsigned>((rows + per_block() - 1) / per_block());
  }
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

}  // namespace ballast::kernels
