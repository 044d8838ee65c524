// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_load_cuda.cuh"

// What callers get: tokens by expert, loads, prices, and how good the assignment is.
namespace ballast::assignment::on_chip {

// What this block's tokens add to the certificate.
template <int kExperts>
__device__ Worth value_rows(Chip<kExperts>& c) {
  constexpr int kLanes = Chip<kExperts>::kLanes;
  const int lane = threadIdx.x % kLanes;
  Worth worth;
#pragma unroll 1
  for (int base = 0; base < c.count; base += Chip<kExperts>::kTogether) {
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
    if (row < c.count) worth.blind += sum;
    if (row < c.count && lane == 0) {
      const int own = c.own[row];
      const double score = score_at(c, row, own);
      worth.primal += score;
      worth.norm += fabs(score);
      worth.slack += best - (score - c.exact_price[own]);
    }
  }
  worth.blind /= c.experts;
  worth = worth.over_lanes();
  auto* of_warps = reinterpret_cast<Worth*>(c.warp_sums);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = worth;
  __syncthreads();
  const int warp = threadIdx.x % 32;
  worth = warp < kWarps ? of_warps[warp] : Worth{};
  __syncthreads();
  return worth.over_lanes();
}

// Experts and places of this block's tokens. c.counts: tokens of each expert in earlier blocks.
template <int kExperts>
__device__ void write_places(Chip<kExperts>& c, const CudaAssignments& results, int problem) {
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
template <int kExperts>
__device__ void value_result(Chip<kExperts>& c) {
  if (threadIdx.x < kExperts) c.counts[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll 1
  for (int row = threadIdx.x; row < c.count; row += kThreads) atomicAdd(&c.counts[c.own[row]], 1);
  const Worth worth = value_rows(c);
  const int turn = c.turn;
#pragma unroll 1
  for (int i = threadIdx.x; i < copies(c) * kExperts; i += kThreads) {
    Note<kExperts>& note = note_for(c, i / kExperts, turn);
    const int e = i % kExperts;
    note.count[e] = static_cast<uint16_t>(c.counts[e]);
    if (e == 0) {
      note.value[0] = worth.primal;
      note.value[1] = worth.slack;
      note.value[2] = worth.blind;
      note.value[3] = worth.norm;
    }
  }
  meet(c);
  Worth all;
#pragma unroll 1
  for (int block = threadIdx.x % 32; block < c.blocks; block += 32) {
    const Note<kExperts>& note = note_of(c, block, turn);
    all.primal += note.value[0];
    all.slack += note.value[1];
    all.blind += note.value[2];
    all.norm += note.value[3];
  }
  all = all.over_lanes();
  sum_blocks<kExperts, int>(
      c,
      [&](int block, int e) {
        return block < c.rank ? static_cast<int>(note_of(c, block, turn).count[e]) : 0;
      },
      [&](int e, int sum) { c.counts[e] = sum; });
  __syncthreads();
  if (threadIdx.x == 0) {
    c.turn = 1 - turn;
    c.worth = all;
  }
  __syncthreads();
}

// Loads, prices and status, for the first block.
template <int kExperts>
__device__ void write_status(Chip<kExperts>& c, const Arguments& a, int problem,
                             const Refused& refused, AssignmentStatus::Code code) {
  const CudaAssignments& results = a.results;
  const int64_t offset = static_cast<int64_t>(problem) * c.experts;
  for (int e = threadIdx.x; e < c.experts; e += kThreads) {
    results.loads[offset + e] = c.even;
    results.prices[offset + e] = c.exact_price[e] / c.lift;
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
  status.primal = c.worth.primal / c.lift;
  status.gap = c.worth.slack / c.lift;
  status.dual = status.primal + status.gap;
  status.blind = c.worth.blind / c.lift;
  results.status[problem] = status;
}

}  // namespace ballast::assignment::on_chip
