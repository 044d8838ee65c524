// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "ballast/assignment/ptx_cuda.cuh"

// What threads of a warp, of a block and of a group of blocks do together.
namespace ballast::assignment::exact_cuda {

constexpr unsigned kAll = 0xffffffffu;

__device__ inline uint32_t mix(uint32_t a, uint32_t b) {
  uint32_t x = a * 0x9E3779B1u ^ (b + 0x7F4A7C15u) * 0x85EBCA77u;
  x ^= x >> 15;
  x *= 0x2C1B3C6Du;
  x ^= x >> 12;
  x *= 0x297A2D39u;
  return x ^ x >> 15;
}

__device__ inline uint64_t mix64(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

// Reductions over aligned groups of `lanes` lanes (a power of two); every lane gets the result.
template <typename T>
__device__ inline T lanes_max(T value, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    const T other = __shfl_xor_sync(kAll, value, step);
    value = other > value ? other : value;
  }
  return value;
}

template <typename T>
__device__ inline T lanes_min(T value, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) {
    const T other = __shfl_xor_sync(kAll, value, step);
    value = other < value ? other : value;
  }
  return value;
}

template <typename T>
__device__ inline T lanes_sum(T value, int lanes) {
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAll, value, step);
  return value;
}

// What this lane takes over from the warps of the block, each of which has one value: that of the
// warp with the lane's number, or `none` where there is no such warp. `scratch` holds 32 values.
template <typename T>
__device__ inline T value_of_warp(T own, T none, T* scratch) {
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  if (lane == 0) scratch[threadIdx.x / 32] = own;
  __syncthreads();
  const T value = lane < warps ? scratch[lane] : none;
  __syncthreads();
  return value;
}

// Sum over the block in a fixed order; `scratch` holds 32 values. All threads call it and get it.
template <typename T>
__device__ inline T block_sum(T value, T* scratch) {
  return lanes_sum(value_of_warp(lanes_sum(value, 32), T(0), scratch), 32);
}

// Three sums at once; `scratch` holds 96 values.
__device__ inline void block_sums(float& x, float& y, float& z, float* scratch) {
  x = lanes_sum(x, 32);
  y = lanes_sum(y, 32);
  z = lanes_sum(z, 32);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (lane == 0) {
    scratch[warp] = x;
    scratch[32 + warp] = y;
    scratch[64 + warp] = z;
  }
  __syncthreads();
  x = lanes_sum(lane < warps ? scratch[lane] : 0.0f, 32);
  y = lanes_sum(lane < warps ? scratch[32 + lane] : 0.0f, 32);
  z = lanes_sum(lane < warps ? scratch[64 + lane] : 0.0f, 32);
  __syncthreads();
}

template <typename T>
__device__ inline T block_max(T value, T* scratch) {
  value = lanes_max(value, 32);
  return lanes_max(value_of_warp(value, value, scratch), 32);
}

// Sum over the threads before this one; `total` gets the sum over all. `scratch` holds 32 values.
__device__ inline int block_prefix(int value, int* scratch, int& total) {
  const int lane = threadIdx.x % 32;
  int inclusive = value;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAll, inclusive, step);
    if (lane >= step) inclusive += other;
  }
  const int warps = blockDim.x / 32;
  if (lane == 31) scratch[threadIdx.x / 32] = inclusive;
  __syncthreads();
  const int sum = lane < warps ? scratch[lane] : 0;
  int before = lane < static_cast<int>(threadIdx.x / 32) ? sum : 0;
  before = lanes_sum(before, 32);
  total = lanes_sum(sum, 32);
  __syncthreads();
  return before + inclusive - value;
}

// The blocks that work on one problem.
struct Team {
  unsigned* counter;  // how often a block has arrived, since the launch
  unsigned goal;
  int size;
  int rank;

  // All threads of all blocks of the team wait here for each other.
  __device__ void meet() {
    __syncthreads();
    if (size == 1) return;
    goal += size;
    if (threadIdx.x == 0) meet_by_fences(counter, goal);
    __syncthreads();
  }
};

}  // namespace ballast::assignment::exact_cuda
