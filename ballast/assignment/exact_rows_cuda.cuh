// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_state_cuda.cuh"

// Reading scores, and the first look at them.
namespace ballast::exact_cuda {

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__half x) { return __half2float(x); }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ inline float minus_infinity() { return __int_as_float(0xff800000); }

template <int C, typename Score>
__device__ inline void read_row_of(const Rows& rows, int64_t token, int lane, float (&value)[C]) {
  const Score* row = static_cast<const Score*>(rows.data) + token * rows.token_stride;
#pragma unroll
  for (int i = 0; i < C; ++i) {
    const int expert = lane + i * rows.lanes;
    value[i] =
        expert < rows.experts ? to_float(row[expert * rows.expert_stride]) : minus_infinity();
  }
}

// The scores of one token for experts lane, lane + lanes, ...; as they are in memory.
template <int C>
__device__ inline void read_raw_row(const Rows& rows, int64_t token, int lane, float (&value)[C]) {
  if (rows.type == ScoreType::kFloat32) {
    read_row_of<C, float>(rows, token, lane, value);
  } else if (rows.type == ScoreType::kBFloat16) {
    read_row_of<C, __nv_bfloat16>(rows, token, lane, value);
  } else {
    read_row_of<C, __half>(rows, token, lane, value);
  }
}

__device__ inline float mended(const Rows& rows, float value) {
  if ((rows.mend & 3) != 0 && !isfinite(value)) {
    value = (rows.mend & 2) != 0 && value < 0 ? value : rows.lowest;
  }
  return value * rows.lift;
}

// The same, with what is not finite replaced. A token below 0 has no score at all.
template <int C>
__device__ inline void read_row(const Rows& rows, int token, int lane, float (&value)[C]) {
  if (token < 0) {
#pragma unroll
    for (int i = 0; i < C; ++i) value[i] = minus_infinity();
    return;
  }
  read_raw_row<C>(rows, token, lane, value);
  if (rows.mend != 0) {
#pragma unroll
    for (int i = 0; i < C; ++i) {
      if (lane + i * rows.lanes < rows.experts) value[i] = mended(rows, value[i]);
    }
  }
}

__device__ inline bool is_counted(const Rows& rows, int token) {
  return rows.counted == nullptr || rows.counted[token] != 0;
}

// Walks over the rows of this block, a warp's `lanes` lanes on each: body(token, lane in row), for
// all lanes together; token is -1 where there is none or it is padding.
template <typename Body>
__device__ inline void for_rows(const Rows& rows, Body body) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int together = 32 / rows.lanes;
  for (int base = rows.first + warp * together; base < rows.last; base += warps * together) {
    const int token = base + lane / rows.lanes;
    const bool live = token < rows.last && is_counted(rows, token);
    body(live ? token : -1, lane % rows.lanes);
  }
}

// Lanes that read the same row as this one.
__device__ inline unsigned row_mask(const Rows& rows) {
  if (rows.lanes == 32) return kAll;
  const int slot = threadIdx.x % 32 / rows.lanes;
  return ((1u << rows.lanes) - 1u) << (slot * rows.lanes);
}

__device__ inline unsigned ordered(float x) {
  const unsigned bits = __float_as_uint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ inline float unordered(unsigned code) {
  return __uint_as_float((code & 0x80000000u) != 0 ? code & 0x7fffffffu : ~code);
}

// One of the lanes in `tied`, at random but always the same for a token.
__device__ inline int chosen_lane(unsigned tied, int token, int salt) {
  const int count = __popc(tied);
  if (count > 1) {
    for (int skip = mix(token, salt) % count; skip > 0; --skip) tied &= tied - 1;
  }
  return __ffs(tied) - 1;
}

// One pass: what is not finite, the range of scores, padding, and the loads at the start prices.
template <int C>
__device__ void first_look(Block& b, const double* start) {
  const Rows& rows = b.rows;
  const NonFinite rule = b.arguments->problems.non_finite;
  float price[C];
#pragma unroll
  for (int i = 0; i < C; ++i) {
    const int expert = threadIdx.x % rows.lanes + i * rows.lanes;
    price[i] = start != nullptr && expert < rows.experts ? static_cast<float>(start[expert]) : 0;
  }
  unsigned long long first_bad = 0;
  unsigned largest = 0, highest = 0, lowest = 0;
  int replaced = 0, forbidden = 0, hopeless = 0, counted = 0;
  for_rows(rows, [&](int token, int lane) {
    float value[C];
    if (token >= 0) {
      read_raw_row<C>(rows, token, lane, value);
    } else {
#pragma unroll
      for (int i = 0; i < C; ++i) value[i] = minus_infinity();
    }
    float best = minus_infinity();
    int at = 0, finite = 0;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      const int expert = lane + i * rows.lanes;
      if (token < 0 || expert >= rows.experts) continue;
      if (isfinite(value[i])) {
        finite = 1;
        const unsigned code = ordered(value[i]);
        largest = max(largest, __float_as_uint(fabsf(value[i])));
        highest = max(highest, code);
        lowest = max(lowest, ~code);
      } else if (rule == NonFinite::kForbid && value[i] < 0) {
        forbidden = 1;
      } else {
        const auto where = static_cast<unsigned long long>(token) * rows.experts + expert;
        first_bad = max(first_bad, ~where);
        ++replaced;
      }
      const float worth = value[i] - price[i];
      if (worth > best) {
        best = worth;
        at = expert;
      }
    }
    const float top = lanes_max(best, rows.lanes);
    const unsigned some = __ballot_sync(kAll, finite != 0) & row_mask(rows);
    const unsigned tied = __ballot_sync(kAll, best == top) & row_mask(rows);
    if (token >= 0 && lane == 0) {
      ++counted;
      hopeless |= some == 0;
    }
    if (token >= 0 && static_cast<int>(threadIdx.x % 32) == chosen_lane(tied, token, 0) &&
        start != nullptr) {
      atomicAdd(&b.hard[at], 1);
    }
  });
  Head* head = b.work.head;
  largest = lanes_max(largest, 32);
  highest = lanes_max(highest, 32);
  lowest = lanes_max(lowest, 32);
  first_bad = lanes_max(first_bad, 32);
  replaced = lanes_sum(replaced, 32);
  counted = lanes_sum(counted, 32);
  forbidden = lanes_max(forbidden, 32);
  hopeless = lanes_max(hopeless, 32);
  if (threadIdx.x % 32 == 0) {
    atomicMax(&head->largest, largest);
    atomicMax(&head->highest, highest);
    atomicMax(&head->lowest, lowest);
    if (first_bad != 0) atomicMax(&head->first_bad, first_bad);
    if (replaced != 0) atomicAdd(&head->replaced, static_cast<unsigned long long>(replaced));
    if (forbidden != 0) atomicMax(&head->forbidden, 1u);
    if (hopeless != 0) atomicMax(&head->hopeless, 1u);
    atomicAdd(&b.int_scratch[0], counted);
  }
}

}  // namespace ballast::exact_cuda
