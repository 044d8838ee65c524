// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_team_cuda.cuh"

// From device memory to shared memory.
namespace ballast::assignment::on_chip {

__device__ inline float lanes_max_or_nan(float x) {
  for (int step = 16; step > 0; step /= 2) x = larger(x, __shfl_xor_sync(kAll, x, step));
  return x;
}

// The start prices, in c.price; zeros where there are none. True: they say something.
template <int kExperts, Meeting kMeeting>
__device__ bool load_start(Chip<kExperts, kMeeting>& c, const double* start) {
  bool finite = true, differ = false;
  if (threadIdx.x < kExperts) {
    const int e = static_cast<int>(threadIdx.x);
    const double price = start != nullptr && e < c.experts ? start[e] : 0;
    finite = isfinite(static_cast<float>(price));
    differ = start != nullptr && e < c.experts && price != start[0];
    c.price[e] = static_cast<float>(price);
  }
  return __syncthreads_and(finite) != 0 && __syncthreads_or(differ) != 0;
}

// Four scores of a row from device memory, `four` * 4 and on; minus infinity behind the last
// expert.
struct PlainScores {  // floats, whose fours can be read at once
  const float* base;
  int64_t token_stride;
  int experts;

  __device__ static bool fit(const CudaProblems& p) {
    return p.type == ScoreType::kFloat32 && p.expert_stride == 1 && p.experts % 4 == 0 &&
           p.token_stride % 4 == 0 && p.problem_stride % 4 == 0 &&
           reinterpret_cast<uintptr_t>(p.scores) % 16 == 0;
  }
  __device__ PlainScores(const CudaProblems& p, int problem)
      : base(static_cast<const float*>(p.scores) + problem * p.problem_stride),
        token_stride(p.token_stride),
        experts(p.experts) {}
  __device__ float4 operator()(int token, int four) const {
    if (4 * four >= experts) return make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    return reinterpret_cast<const float4*>(base + token * token_stride)[four];
  }
};
struct AnyScores {
  const CudaProblems& p;
  int problem;

  __device__ float4 operator()(int token, int four) const {
    return make_float4(score(token, 4 * four), score(token, 4 * four + 1),
                       score(token, 4 * four + 2), score(token, 4 * four + 3));
  }
  __device__ float score(int token, int e) const {
    return e < p.experts ? raw_score(p, problem, token, e) : -INFINITY;
  }
};

// How far the scores of a row spread, by Read::squares of `rows`: within fours of experts, which is
// as far as all of them unless neighbours are alike.
template <int kExperts, Meeting kMeeting>
__device__ inline float deviation_of(const Chip<kExperts, kMeeting>& c, float squares, int rows) {
  const int free = max(rows, 1) * (c.experts - (c.experts + 3) / 4);
  return fmaxf(sqrtf(squares / static_cast<float>(free)), 1e-30f);
}

// What a thread has seen of this block's scores while it read them.
struct Read {
  float largest = 0;  // magnitude
  float squares = 0;  // of scores less start prices, about the means of their fours
};

template <int kExperts, Meeting kMeeting, typename Scores>
__device__ inline Read read_scores(Chip<kExperts, kMeeting>& c, const Scores& scores) {
  constexpr int kFours = kExperts / 4;
  static_assert(kThreads % kFours == 0);
  const int four = threadIdx.x % kFours, among = min(c.experts - 4 * four, 4);  // experts of it
  const float inverse = 1.0f / static_cast<float>(max(among, 1));
  const float4 price = reinterpret_cast<const float4*>(c.price)[four];
  Read read;
#pragma unroll 4
  for (int row = threadIdx.x / kFours; row < c.count; row += kThreads / kFours) {
    const float4 x = scores(c.first + row, four);
    reinterpret_cast<float4*>(c.scores())[four_at<kExperts>(row, four)] = x;
    float y[] = {x.x, x.y, x.z, x.w}, sum = 0;
    const float of[] = {price.x, price.y, price.z, price.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k >= among) continue;
      read.largest = larger(read.largest, fabsf(y[k]));
      y[k] -= of[k];
      sum += y[k];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float off = k < among ? y[k] - sum * inverse : 0;
      read.squares = fmaf(off, off, read.squares);
    }
  }
  return read;
}

// This block's scores, from device memory; what they are like, in c.own_largest, c.own_refused,
// c.own_squares and c.deviation; in c.direction the first token's. c.price: the start prices.
template <int kExperts, Meeting kMeeting>
__device__ void load_scores(Chip<kExperts, kMeeting>& c, const CudaProblems& p, int problem) {
  const bool first = static_cast<int>(threadIdx.x) < c.experts;
  const float of_first = first ? raw_score(p, problem, 0, threadIdx.x) : 0;
  Read read = PlainScores::fit(p) ? read_scores(c, PlainScores{p, problem})
                                  : read_scores(c, AnyScores{p, problem});
  if (first) c.direction[threadIdx.x] = of_first;
  read.largest = lanes_max_or_nan(read.largest);
  if (threadIdx.x % 32 == 0) c.warp_most[threadIdx.x / 32] = read.largest;
  const float squares = exact_cuda::block_sum(read.squares, c.warp_sums[0]);
  if (threadIdx.x == 0) {
    float largest = read.largest;
    for (int warp = 1; warp < kWarps; ++warp) largest = larger(largest, c.warp_most[warp]);
    c.own_refused = isfinite(largest) ? 0 : 1;
    c.own_largest = c.own_refused != 0 ? 0 : largest;
    c.own_squares = squares;
    c.deviation = deviation_of(c, squares, c.count);
  }
}

// Whether squares and differences of scores of this magnitude may be no ordinary numbers.
__device__ inline bool is_odd(float largest) {
  return largest > 0 && (largest < 0x1p-40f || largest >= 0x1p41f);
}

// Whether start prices, in c.price, can be of scores of this size, which must be an ordinary one:
// prices that the optimum has are no farther apart than scores are.
template <int kExperts, Meeting kMeeting>
__device__ inline bool start_fits(const Chip<kExperts, kMeeting>& c) {
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
template <int kExperts, Meeting kMeeting>
__device__ void open_team(Chip<kExperts, kMeeting>& c, const Arguments& a) {
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
  if (c.at_desk()) c.desk = reinterpret_cast<Desk<kExperts>*>(a.desks + team * a.desk_bytes);
}

template <int kExperts, Meeting kMeeting>
__device__ void open_problem(Chip<kExperts, kMeeting>& c) {
  if (threadIdx.x == 0) {
    c.turn = 0;
    c.unit = 1;
  }
  __syncthreads();
}

template <int kExperts, Meeting kMeeting>
__noinline__ __device__ void lift_by(Chip<kExperts, kMeeting>& c, int exponent) {
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < c.count * kExperts; i += kThreads)
    c.scores()[i] = ldexpf(c.scores()[i], -exponent);
  for (int e = threadIdx.x; e < c.experts; e += kThreads)
    c.direction[e] = ldexpf(c.direction[e], -exponent);
  if (threadIdx.x == 0) c.unit = ldexp(1.0, exponent);
  meet(c);  // all have read what first_look writes anew
}

// Brings very small and very large scores to where squares and differences are ordinary numbers.
// False: they are already.
template <int kExperts, Meeting kMeeting>
__device__ inline bool lift_scores(Chip<kExperts, kMeeting>& c) {
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
template <int kExperts, Meeting kMeeting>
__noinline__ __device__ Refused mend_scores(Chip<kExperts, kMeeting>& c) {
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
