// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_team_cuda.cuh"

// From device memory to shared memory.
namespace ballast::assignment::on_chip {

__device__ inline float lanes_max_or_nan(float x) {
  for (int step = 16; step > 0; step /= 2) x = larger(x, __shfl_xor_sync(kAll, x, step));
  return x;
}

// This block's scores, from device memory; c.own_largest and c.own_refused.
template <int kExperts>
__device__ void load_scores(Chip<kExperts>& c, const CudaProblems& p, int problem) {
  constexpr int kFours = kExperts / 4;
  const bool plain = p.type == ScoreType::kFloat32 && p.expert_stride == 1 && p.experts % 4 == 0 &&
                     p.token_stride % 4 == 0 && p.problem_stride % 4 == 0 &&
                     reinterpret_cast<uintptr_t>(p.scores) % 16 == 0;
  const float* base = static_cast<const float*>(p.scores) + problem * p.problem_stride;
  float largest = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < c.count * kFours; i += kThreads) {
    const int row = i / kFours, four = i % kFours, token = c.first + row;
    float4 x = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    if (plain) {
      if (4 * four < p.experts)
        x = reinterpret_cast<const float4*>(base + token * p.token_stride)[four];
    } else {
      if (4 * four < p.experts) x.x = raw_score(p, problem, token, 4 * four);
      if (4 * four + 1 < p.experts) x.y = raw_score(p, problem, token, 4 * four + 1);
      if (4 * four + 2 < p.experts) x.z = raw_score(p, problem, token, 4 * four + 2);
      if (4 * four + 3 < p.experts) x.w = raw_score(p, problem, token, 4 * four + 3);
    }
    reinterpret_cast<float4*>(c.scores())[four_at<kExperts>(row, four)] = x;
    const float score[] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (4 * four + k < p.experts) largest = larger(largest, fabsf(score[k]));
  }
  largest = lanes_max_or_nan(largest);
  if (threadIdx.x % 32 == 0) c.warp_most[threadIdx.x / 32] = largest;
#pragma unroll 1
  for (int e = threadIdx.x; e < p.experts; e += kThreads)
    c.direction[e] = raw_score(p, problem, 0, e);
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kWarps; ++warp) largest = larger(largest, c.warp_most[warp]);
    c.own_refused = isfinite(largest) ? 0 : 1;
    c.own_largest = c.own_refused != 0 ? 0 : largest;
  }
}

// The start prices, in c.price. True: they say something.
template <int kExperts>
__device__ bool load_start(Chip<kExperts>& c, const double* start) {
  if (start == nullptr) return false;
  bool finite = true, differ = false;
#pragma unroll 1
  for (int e = threadIdx.x; e < c.experts; e += kThreads) {
    const auto price = static_cast<float>(start[e]);
    finite = finite && isfinite(price);
    differ = differ || start[e] != start[0];
    c.price[e] = price;
  }
  return __syncthreads_and(finite) != 0 && __syncthreads_or(differ) != 0;
}

// Whether squares and differences of scores of this magnitude may be no ordinary numbers.
__device__ inline bool is_odd(float largest) {
  return largest > 0 && (largest < 0x1p-40f || largest >= 0x1p41f);
}

// Whether start prices, in c.price, can be of scores of this size, which must be an ordinary one:
// prices that the optimum has are no farther apart than scores are.
template <int kExperts>
__device__ inline bool start_fits(const Chip<kExperts>& c) {
  if (is_odd(c.largest)) return false;
  float low = INFINITY, high = -INFINITY;
#pragma unroll 1
  for (int e = threadIdx.x % 32; e < c.experts; e += 32) {
    low = fminf(low, c.price[e]);
    high = fmaxf(high, c.price[e]);
  }
  return lanes_max(high, 32) + lanes_max(-low, 32) <= 16 * c.largest;
}

// What is the same for all problems of the team.
template <int kExperts>
__device__ void open_team(Chip<kExperts>& c, const Arguments& a) {
  if (threadIdx.x != 0) return;
  const int team = static_cast<int>(blockIdx.x) / a.blocks;
  c.experts = a.problems.experts;
  c.tokens = a.problems.tokens;
  c.even = c.tokens / c.experts;
  c.blocks = a.blocks;
  c.rank = static_cast<int>(blockIdx.x) % a.blocks;
  c.rows = a.rows;
  c.first = c.rank * a.rows;
  c.count = max(0, min(a.rows, c.tokens - c.first));
  c.sum_turn = 0;
  c.goal = 0;
  c.desk = a.desks == nullptr ? nullptr
                              : reinterpret_cast<Desk<kExperts>*>(a.desks + team * a.desk_bytes);
}

template <int kExperts>
__device__ void open_problem(Chip<kExperts>& c) {
  if (threadIdx.x == 0) {
    c.turn = 0;
    c.lift = 1;
  }
  if (threadIdx.x < kExperts) c.price[threadIdx.x] = 0;
  __syncthreads();
}

template <int kExperts>
__noinline__ __device__ void lift_by(Chip<kExperts>& c, int exponent) {
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < c.count * kExperts; i += kThreads)
    c.scores()[i] = ldexpf(c.scores()[i], -exponent);
  for (int e = threadIdx.x; e < c.experts; e += kThreads)
    c.direction[e] = ldexpf(c.direction[e], -exponent);
  if (threadIdx.x == 0) c.lift = ldexp(1.0, -exponent);
  meet(c);  // all have read what first_look writes anew
}

// Brings very small and very large scores to where squares and differences are ordinary numbers.
// False: they are already.
template <int kExperts>
__device__ inline bool lift_scores(Chip<kExperts>& c) {
  if (!is_odd(c.largest)) return false;
  lift_by(c, ilogbf(c.largest));
  return true;
}

// Scores that are not finite.
struct Refused {
  int64_t count = 0;
  int first = -1;  // token * E + expert
};

// Puts the lowest finite score in place of all that are not finite.
template <int kExperts>
__noinline__ __device__ Refused mend_scores(Chip<kExperts>& c) {
  double lowest = INFINITY;
  int count = 0, last = -1;  // `last`: how far from the problem's end the first is
#pragma unroll 1
  for (int i = threadIdx.x; i < c.count * c.experts; i += kThreads) {
    const float score = score_at(c, i / c.experts, i % c.experts);
    if (isfinite(score)) {
      lowest = fmin(lowest, static_cast<double>(score));
    } else {
      ++count;
      last = max(last, (c.tokens - c.first) * c.experts - i);
    }
  }
  lowest = -exact_cuda::block_max(-lowest, c.double_scratch);
  count = exact_cuda::block_sum(count, c.int_scratch);
  last = exact_cuda::block_max(last, c.int_scratch);
  const int turn = c.turn;
  if (static_cast<int>(threadIdx.x) < copies(c)) {
    Note<kExperts>& note = note_for(c, threadIdx.x, turn);
    note.value[0] = lowest;
    note.list[0] = count;
    note.list[1] = last;
  }
  meet(c);
  Refused refused;
  last = -1;
#pragma unroll 1
  for (int block = 0; block < c.blocks; ++block) {
    const Note<kExperts>& note = note_of(c, block, turn);
    lowest = fmin(lowest, note.value[0]);
    refused.count += note.list[0];
    last = max(last, note.list[1]);
  }
  refused.first = c.tokens * c.experts - last;
  const float mended = isfinite(lowest) ? static_cast<float>(lowest) : 0;
#pragma unroll 1
  for (int i = threadIdx.x; i < c.count * c.experts; i += kThreads) {
    float& score =
        c.scores()[4 * four_at<kExperts>(i / c.experts, i % c.experts / 4) + i % c.experts % 4];
    if (!isfinite(score)) score = mended;
  }
  for (int e = threadIdx.x; e < c.experts; e += kThreads) {
    if (!isfinite(c.direction[e])) c.direction[e] = mended;
  }
  meet(c);  // all have read what first_look writes anew
  return refused;
}

}  // namespace ballast::assignment::on_chip
