// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_scan_rows_cuda.cuh"

// The first look at the scores, and what it says of their scale.
namespace ballast::assignment::exact_cuda {

// What one thread has seen.
struct Seen {
  unsigned long long first_bad = 0;
  unsigned largest = 0, highest = 0, lowest = 0;
  int replaced = 0, forbidden = 0, hopeless = 0, counted = 0;

  // 1: the score is finite.
  __device__ int one(float value, int64_t where, NonFinite rule) {
    if (isfinite(value)) {
      largest = max(largest, __float_as_uint(fabsf(value)));
      highest = max(highest, order_code(value));
      lowest = max(lowest, ~order_code(value));
      return 1;
    }
    if (rule == NonFinite::kForbid && value < 0) {
      forbidden = 1;
    } else {
      first_bad = max(first_bad, ~static_cast<unsigned long long>(where));
      ++replaced;
    }
    return 0;
  }

  __device__ void add_to(Head* head, int* block_counted) {
    largest = lanes_max(largest, 32);
    highest = lanes_max(highest, 32);
    lowest = lanes_max(lowest, 32);
    first_bad = lanes_max(first_bad, 32);
    replaced = lanes_sum(replaced, 32);
    counted = lanes_sum(counted, 32);
    forbidden = lanes_max(forbidden, 32);
    hopeless = lanes_max(hopeless, 32);
    if (threadIdx.x % 32 != 0) return;
    atomicMax(&head->largest, largest);
    atomicMax(&head->highest, highest);
    atomicMax(&head->lowest, lowest);
    if (first_bad != 0) atomicMax(&head->first_bad, first_bad);
    if (replaced != 0) atomicAdd(&head->replaced, static_cast<unsigned long long>(replaced));
    if (forbidden != 0) atomicMax(&head->forbidden, 1u);
    if (hopeless != 0) atomicMax(&head->hopeless, 1u);
    atomicAdd(block_counted, counted);
  }
};

// The start prices of this lane's experts, and a bit for each expert that there is.
template <class M>
__device__ inline unsigned read_start(const Rows& rows, const double* start,
                                      float (&price)[M::kValues]) {
  unsigned inside = 0;
#pragma unroll
  for (int i = 0; i < M::kValues; ++i) {
    const int expert = M::expert(threadIdx.x % M::kLanes, i);
    price[i] = start != nullptr && expert < rows.experts ? static_cast<float>(start[expert]) : 0;
    if (expert < rows.experts) inside |= 1u << i;
  }
  return inside;
}

// One pass: what is not finite, the range of scores, padding, and the loads at the start prices.
// Fills the stage.
template <class M>
__noinline__ __device__ void first_look(Problem& p, const Scan& scan, const double* start) {
  const Rows& rows = p.rows;
  const NonFinite rule = p.arguments->problems.non_finite;
  float price[M::kValues];
  const unsigned inside = read_start<M>(rows, start, price);
  Seen seen;
  for_rows<M>(rows, [&](int token, int lane, const float(&value)[M::kValues]) {
    float best = minus_infinity(), high = minus_infinity(), low = -minus_infinity();
    unsigned largest = 0;
    int at = 0, finite = 1;
#pragma unroll
    for (int i = 0; i < M::kValues; ++i) {
      if ((inside >> i & 1u) == 0) continue;
      largest = max(largest, __float_as_uint(value[i]) & 0x7fffffffu);
      high = fmaxf(high, value[i]);
      low = fminf(low, value[i]);
      const float worth = value[i] - price[i];
      if (worth > best) {
        best = worth;
        at = M::expert(lane, i);
      }
    }
    if (token < 0 || inside == 0) {
      finite = 0;
    } else if (largest < 0x7f800000u) {
      seen.largest = max(seen.largest, largest);
      seen.highest = max(seen.highest, order_code(high));
      seen.lowest = max(seen.lowest, ~order_code(low));
    } else {
      finite = 0;
#pragma unroll
      for (int i = 0; i < M::kValues; ++i) {
        if ((inside >> i & 1u) == 0) continue;
        const int expert = M::expert(lane, i);
        finite |= seen.one(value[i], static_cast<int64_t>(token) * rows.experts + expert, rule);
      }
    }
    const float top = lanes_max(best, M::kLanes);
    const unsigned some = __ballot_sync(kAll, finite != 0) & row_mask<M>();
    const unsigned tied = __ballot_sync(kAll, best == top) & row_mask<M>();
    if (token < 0) return;
    if (lane == 0) {
      ++seen.counted;
      seen.hopeless |= some == 0;
    }
    if (tied != 0 && static_cast<int>(threadIdx.x % 32) == chosen_lane(tied, token)) {
      atomicAdd(&p.hard[at], 1);
    }
    if (rows.stage != nullptr) stage_row<M>(rows, token, lane, value);
  });
  seen.add_to(scan.head, &p.scratch.ints[0]);
}

// From here on rows are read from the stage, if there is one, with what is not finite replaced.
// Without one, rows that need mending are read the slow way.
template <class M>
__device__ void use_stage(Problem& p) {
  Rows& rows = p.rows;
  __syncthreads();
  if (rows.stage == nullptr) {
    if (threadIdx.x == 0 && rows.mend != 0) rows.base = nullptr;
    __syncthreads();
    return;
  }
  if (rows.mend != 0) {
    for_rows<M>(rows, [&](int token, int lane, float(&)[M::kValues]) {
      if (token < 0) return;
      const Scores<M> row = read_slowly<M>(rows, token, lane);
      stage_row<M>(rows, token, lane, row.value);
    });
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    rows.base = rows.stage;
    rows.origin = rows.first;
    rows.pitch = M::kWidth * (rows.type == ScoreType::kFloat32 ? 4 : 2);
  }
  __syncthreads();
}

// Scales, from what the first look found.
__device__ inline void set_scales(Problem& p, const Scan& scan) {
  const Head head = *scan.head;
  const NonFinite rule = p.arguments->problems.non_finite;
  Rows& rows = p.rows;
  const bool any = head.highest != 0;
  const float lowest = any ? from_order_code(~head.lowest) : 0;
  const float highest = any ? from_order_code(head.highest) : 0;
  rows.lowest = lowest;
  if (rule == NonFinite::kForbid && head.forbidden != 0) {
    rows.mend = head.hopeless != 0 ? 1 : 2;
    p.infeasible = head.hopeless != 0;
    p.forbid = head.hopeless == 0;
  }
  if (head.replaced != 0 && rows.mend == 0) rows.mend = 1;
  double largest = __uint_as_float(head.largest);
  if (largest > 0 && largest < 1e-18) {
    rows.lift = 18446744073709551616.0f;  // 2^64, so that small scores keep their digits as floats
    rows.mend |= 4;
    largest *= rows.lift;
  }
  int exponent = 0;
  if (largest > 0) frexp(largest, &exponent);
  p.soft_scale = ldexp(1.0, -exponent);
  p.exponent = exponent;
  p.range = (static_cast<double>(highest) - lowest) * rows.lift * p.soft_scale;
  p.counted = static_cast<int>(head.counted);
  p.padding = rows.tokens - p.counted;
}

// Deviation of the scores about their expert's mean, from a sample of tokens.
__device__ inline void sample_deviation(Problem& p) {
  const Rows& rows = p.rows;
  const int parts = max(1, static_cast<int>(blockDim.x) / p.experts);
  const int samples = min(rows.tokens, max(32, 1024 / p.experts));
  auto* sums = reinterpret_cast<double*>(p.scratch.arena);
  const int columns = parts * p.experts;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    const int e = i % p.experts;
    double sum = 0, square = 0;
    for (int k = i / p.experts; k < samples; k += parts) {
      const int token = static_cast<int>(static_cast<int64_t>(k) * rows.tokens / samples);
      const float value = mended(rows, raw_score(rows, token, e));
      const double x = isfinite(value) && is_counted(rows, token) ? value * p.soft_scale : 0;
      sum += x;
      square += x * x;
    }
    sums[2 * i] = sum;
    sums[2 * i + 1] = square;
  }
  __syncthreads();
  double variance = 0;
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    double sum = 0, square = 0;
    for (int part = 0; part < parts; ++part) {
      sum += sums[2 * (part * p.experts + e)];
      square += sums[2 * (part * p.experts + e) + 1];
    }
    variance += fmax(0.0, square - sum * sum / samples);
  }
  variance = block_sum(variance, p.scratch.sums) / (static_cast<double>(samples) * p.experts);
  if (threadIdx.x == 0) {
    p.deviation = fmax(sqrt(variance), fmax(p.range * 1e-3, 1e-12));
  }
  __syncthreads();
}

// The start prices in soft units. True: they say something.
__device__ inline bool load_start(Problem& p, const double* start) {
  double low = 1e300, high = -1e300;
  bool bad = start == nullptr;
  for (int e = threadIdx.x; e < p.experts && start != nullptr; e += blockDim.x) {
    p.price[e] = start[e];
    bad = bad || !isfinite(p.price[e]);
    low = fmin(low, p.price[e]);
    high = fmax(high, p.price[e]);
  }
  bad = __syncthreads_or(bad) != 0;
  low = -block_max(-low, p.scratch.sums);
  high = block_max(high, p.scratch.sums);
  if (bad || !(high > low)) {
    for (int e = threadIdx.x; e < p.experts; e += blockDim.x) p.price[e] = 0;
    __syncthreads();
    return false;
  }
  const double scale = p.soft_scale * p.rows.lift;
  for (int e = threadIdx.x; e < p.experts; e += blockDim.x) {
    p.price[e] = fmin((p.price[e] - low) * scale, p.forbid ? 1e3 : 2.0);
  }
  __syncthreads();
  return true;
}

}  // namespace ballast::assignment::exact_cuda
