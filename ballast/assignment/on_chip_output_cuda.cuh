// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_load_cuda.cuh"

// What callers get: tokens by expert, loads, prices, and how good the assignment is.
namespace ballast::assignment::on_chip {

// Of four sums over a warp's lanes that of number threadIdx.x % 32 / 8.
__device__ inline double sum_four(double first, double second, double third, double fourth) {
  const bool upper = (threadIdx.x & 16) != 0, odd = (threadIdx.x & 8) != 0;
  const double a = (upper ? third : first) + __shfl_xor_sync(kAll, upper ? first : third, 16);
  const double b = (upper ? fourth : second) + __shfl_xor_sync(kAll, upper ? second : fourth, 16);
  return lanes_sum((odd ? b : a) + __shfl_xor_sync(kAll, odd ? a : b, 8), 8);
}

// What this block's tokens add to the certificate: of each warp, lane i has number i of Worth.
template <int kExperts, Meeting kMeeting>
__device__ double value_rows(Chip<kExperts, kMeeting>& c) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  const int lane = threadIdx.x % kLanes;
  double primal = 0, slack = 0, blind = 0, norm = 0;
#pragma unroll 1
  for (int base = 0; base < c.count; base += Layout<kExperts>::kTogether) {
    const int row = base + threadIdx.x / kLanes;
    float value[kValues];
    read_row(c, row, value);
    double sum = 0;
    float high = -INFINITY;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const int e = expert_at<kExperts>(lane, i);
      if (e < c.experts) sum += value[i];
      value[i] -= c.price[e];
      high = fmaxf(high, value[i]);
    }
    // In floats first: only those that these cannot tell from the best are looked at closely.
    high = lanes_max(high, kLanes);
    const float slop = 1e-6f * (4 * c.largest + 2 * fabsf(high));
    unsigned maybe = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) maybe |= value[i] >= high - slop ? 1u << i : 0u;
    double best = -INFINITY;
    for (unsigned left = row < c.count ? maybe : 0; left != 0; left &= left - 1) {
      const int e = expert_at<kExperts>(lane, __ffs(left) - 1);
      best = fmax(best, score_at(c, row, e) - c.exact_price[e]);
    }
    best = lanes_max(best, kLanes);
    if (row < c.count) blind += sum;
    if (row < c.count && lane == 0) {
      const int own = c.own[row];
      const double score = score_at(c, row, own);
      primal += score;
      norm += fabs(score);
      slack += best - (score - c.exact_price[own]);
    }
  }
  auto* of_warps = reinterpret_cast<double*>(c.warp_sums);  // [kWarps, kWorths]
  const double sum = sum_four(primal, slack, blind / c.experts, norm);
  if (threadIdx.x % 8 == 0) of_warps[threadIdx.x / 8] = sum;
  __syncthreads();
  double all = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) all += of_warps[warp * kWorths + threadIdx.x % kWorths];
  __syncthreads();
  return all;
}

// Experts and places of this block's tokens. c.counts: tokens of each expert in earlier blocks.
template <int kExperts, Meeting kMeeting>
__device__ void write_places(Chip<kExperts, kMeeting>& c, const CudaAssignments& results,
                             int problem) {
  const int64_t offset = static_cast<int64_t>(problem) * c.tokens;
  place_in_order<kExperts>(
      c.count, c.counts, reinterpret_cast<int*>(c.arena()), [&](int row) { return c.own[row]; },
      [&](int row, int own, int in_expert) {
        const int place = own * c.even + in_expert;
        results.expert_of_token[offset + c.first + row] = own;
        results.place_of_token[offset + c.first + row] = place;
        results.tokens_by_expert[offset + place] = c.first + row;
      });
}

// Places of all tokens need what earlier blocks have; the certificate needs all blocks. Sets
// c.counts to the tokens of each expert in earlier blocks, and c.worth.
template <int kExperts, Meeting kMeeting>
__device__ void value_result(Chip<kExperts, kMeeting>& c) {
  if (threadIdx.x < kExperts) c.counts[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (int row = threadIdx.x; row < c.count; row += kThreads) atomicAdd(&c.counts[c.own[row]], 1);
  const double worth = value_rows(c);
  const int turn = c.turn;
#pragma unroll 1
  for (int i = threadIdx.x; i < copies(c) * kExperts; i += kThreads) {
    Note<kExperts>& note = note_for(c, i / kExperts, turn);
    const int e = i % kExperts;
    note.count[e] = static_cast<uint16_t>(c.counts[e]);
    if (e < kWorths) note.value[e] = worth;
  }
  meet(c);
  if (threadIdx.x < 32) {
    double sum = 0;
#pragma unroll 1
    for (int block = threadIdx.x / kWorths; block < c.blocks; block += 32 / kWorths)
      sum += note_of(c, block, turn).value[threadIdx.x % kWorths];
#pragma unroll
    for (int step = 16; step >= kWorths; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
    if (threadIdx.x < kWorths) c.worth[threadIdx.x] = sum;
  }
  sum_blocks<int>(
      c,
      [&](int block, int e) {
        return block < c.rank ? static_cast<int>(note_of(c, block, turn).count[e]) : 0;
      },
      [&](int e, int sum) { c.counts[e] = sum; });
  __syncthreads();
  if (threadIdx.x == 0) c.turn = 1 - turn;
  __syncthreads();
}

// Whether the assignment of c.worth is within the gap.
template <int kExperts, Meeting kMeeting>
__device__ inline bool is_within(const Chip<kExperts, kMeeting>& c, double gap) {
  return c.worth[kSlack] <= gap * (c.worth[kPrimal] + c.worth[kSlack] - c.worth[kBlind]);
}

// Loads, prices and status, for the first block.
template <int kExperts, Meeting kMeeting>
__device__ void write_status(Chip<kExperts, kMeeting>& c, const Arguments& a, int problem,
                             const Refused& refused, AssignmentStatus::Code code) {
  const CudaAssignments& results = a.results;
  const int64_t offset = static_cast<int64_t>(problem) * c.experts;
  for (int e = threadIdx.x; e < c.experts; e += kThreads) {
    results.loads[offset + e] = c.even;
    results.prices[offset + e] = c.exact_price[e] * c.unit;
  }
  if (threadIdx.x != 0) return;
  AssignmentStatus status;
  status.code = code;
  if (refused.count > 0 && a.problems.non_finite == NonFinite::kReject) {
    status.code = AssignmentStatus::kNonFinite;
    status.token = refused.first / c.experts;
    status.expert = refused.first % c.experts;
  } else {
    status.replaced = refused.count;
  }
  status.valid = 1;
  status.primal = c.worth[kPrimal] * c.unit;
  status.gap = c.worth[kSlack] * c.unit;
  status.dual = status.primal + status.gap;
  status.blind = c.worth[kBlind] * c.unit;
  results.status[problem] = status;
}

}  // namespace ballast::assignment::on_chip
