// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_state_cuda.cuh"
#include "ballast/assignment/score_reader_cuda.cuh"

// Reading scores.
namespace ballast::assignment::exact_cuda {

__device__ inline float from_bits(uint16_t bits, ScoreType type) {
  if (type == ScoreType::kBFloat16) return __uint_as_float(static_cast<unsigned>(bits) << 16);
  return __half2float(__ushort_as_half(bits));
}

// One score as it is in memory.
__device__ inline float raw_score(const Rows& rows, int64_t token, int64_t expert) {
  const int64_t at = token * rows.token_stride + expert * rows.expert_stride;
  if (rows.type == ScoreType::kFloat32) return static_cast<const float*>(rows.data)[at];
  return from_bits(static_cast<const uint16_t*>(rows.data)[at], rows.type);
}

__device__ inline float mended(const Rows& rows, float value) {
  if ((rows.mend & 3) != 0 && !isfinite(value)) {
    value = (rows.mend & 2) != 0 && value < 0 ? value : rows.lowest;
  }
  return value * rows.lift;
}

// Four scores at a time, from memory that allows it.
template <class M>
__device__ inline void read_fours(const Rows& rows, int token, int lane,
                                  float (&value)[M::kValues]) {
  const char* row = rows.base + (token - rows.origin) * rows.pitch;
#pragma unroll
  for (int j = 0; j < M::kValues / 4; ++j) {
    const int four = lane + j * M::kLanes;
    const bool inside = rows.base == rows.stage || 4 * four < rows.experts;
    if (rows.type == ScoreType::kFloat32) {
      const float4 x = inside ? reinterpret_cast<const float4*>(row)[four]
                              : make_float4(minus_infinity(), minus_infinity(), minus_infinity(),
                                            minus_infinity());
      value[4 * j] = x.x;
      value[4 * j + 1] = x.y;
      value[4 * j + 2] = x.z;
      value[4 * j + 3] = x.w;
    } else {
      const uint2 x = inside ? reinterpret_cast<const uint2*>(row)[four] : make_uint2(0, 0);
      const unsigned bits[4] = {x.x & 0xffffu, x.x >> 16, x.y & 0xffffu, x.y >> 16};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float y = from_bits(static_cast<uint16_t>(bits[k]), rows.type);
        value[4 * j + k] = inside ? y : minus_infinity();
      }
    }
  }
}

template <class M>
struct Scores {
  float value[M::kValues];
};

// The slow way: any strides, and what is not finite replaced. Apart, to keep loops small.
template <class M>
__noinline__ __device__ Scores<M> read_slowly(const Rows& rows, int token, int lane) {
  Scores<M> row;
  for (int i = 0; i < M::kValues; ++i) {
    const int expert = M::expert(lane, i);
    row.value[i] = minus_infinity();
    if (expert < rows.experts) row.value[i] = mended(rows, raw_score(rows, token, expert));
  }
  return row;
}

// The scores of one token that a thread has, with what is not finite replaced. -inf: no expert, or
// a token below 0.
template <class M>
__device__ inline void read_row(const Rows& rows, int token, int lane, float (&value)[M::kValues]) {
  if (token < 0) {
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) value[i] = minus_infinity();
  } else if (rows.base != nullptr) {
    read_fours<M>(rows, token, lane, value);
  } else {
    const Scores<M> row = read_slowly<M>(rows, token, lane);
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) value[i] = row.value[i];
  }
}

// Puts a row as it is in memory into this block's copy.
template <class M>
__device__ inline void stage_row(const Rows& rows, int token, int lane,
                                 const float (&value)[M::kValues]) {
  const int64_t at = static_cast<int64_t>(token - rows.first) * M::kWidth;
#pragma unroll
  for (int j = 0; j < M::kValues / 4; ++j) {
    const int64_t four = at / 4 + lane + j * M::kLanes;
    if (rows.type == ScoreType::kFloat32) {
      reinterpret_cast<float4*>(rows.stage)[four] =
          make_float4(value[4 * j], value[4 * j + 1], value[4 * j + 2], value[4 * j + 3]);
    } else {
      unsigned bits[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float x = value[4 * j + k];
        bits[k] = rows.type == ScoreType::kBFloat16 ? __float_as_uint(x) >> 16
                                                    : __half_as_ushort(__float2half_rn(x));
      }
      reinterpret_cast<uint2*>(rows.stage)[four] =
          make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
    }
  }
}

__device__ inline bool is_counted(const Rows& rows, int token) {
  return rows.counted == nullptr || rows.counted[token] != 0;
}

// Walks over the rows of this block: body(token, lane in row, scores), for all lanes of a warp
// together; token is -1 where there is none or it is padding. Reads one row ahead.
template <class M, typename Body>
__device__ inline void for_rows(const Rows& rows, Body body) {
  const int lane = threadIdx.x % M::kLanes, slot = threadIdx.x % 32 / M::kLanes;
  const int warp = threadIdx.x / 32, step = blockDim.x / 32 * M::kTogether;
  const int last = rows.last;
  float next[M::kValues];
  int token = -1;
  for (int base = rows.first + warp * M::kTogether - step; base < last; base += step) {
    float value[M::kValues];
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) value[i] = next[i];
    const int now = token;
    if (base + step < last) {
      token = base + step + slot;
      if (token >= last || !is_counted(rows, token)) token = -1;
      read_row<M>(rows, token, lane, next);
    }
    if (base >= rows.first) body(now, lane, value);
  }
}

// Lanes that read the same row as this one.
template <class M>
__device__ inline unsigned row_mask() {
  if constexpr (M::kLanes == 32) {
    return kAll;
  } else {
    const int slot = threadIdx.x % 32 / M::kLanes;
    return ((1u << M::kLanes) - 1u) << (slot * M::kLanes);
  }
}

// One of the lanes in `tied`, at random but always the same for a token.
__device__ inline int chosen_lane(unsigned tied, int token) {
  const int count = __popc(tied);
  if (count > 1) {
    for (int skip = mix(token, 0) % count; skip > 0; --skip) tied &= tied - 1;
  }
  return __ffs(tied) - 1;
}

}  // namespace ballast::assignment::exact_cuda
