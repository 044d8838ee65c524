// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_output_cuda.cuh"

// The whole solver, as the blocks of a team run it.
namespace ballast::assignment::exact_cuda {

constexpr int kMaxRounds = 200;
constexpr size_t kMostStaged = 131072;  // bytes of scores that a block keeps in shared memory
constexpr int kWholeFrom = 12;          // rounds from here on leave nothing of a window out

// Sum over blocks of what they left in work.parts, in their order.
__device__ inline double sum_parts(Block& b, const Team& team, int part) {
  double sum = 0;
  for (int i = threadIdx.x; i < team.size; i += blockDim.x) {
    sum += __ldcg(&b.work.parts[i * kParts + part]);
  }
  return block_sum(sum, b.sum_scratch);
}

template <class M>
__device__ inline void open_block(Block& b, const Arguments& arguments, char* memory) {
  const int e = arguments.problems.experts;
  char* at = memory + (sizeof(Block) + 15) / 16 * 16;
  b.arguments = &arguments;
  b.experts = e;
  b.price = from_arena<double>(at, e);
  b.best = from_arena<double>(at, e);
  b.bias = from_arena<float>(at, e);
  for (auto& vector : b.vector) vector = from_arena<float>(at, e);
  int** arrays[] = {&b.hard, &b.soft, &b.square, &b.lower, &b.upper};
  for (int** array : arrays) *array = from_arena<int>(at, e);
  b.heavy = from_arena<Heavy>(at, blockDim.x / 32 * M::kTogether);
  const size_t size = arguments.problems.type == ScoreType::kFloat32 ? 4 : 2;
  const size_t bytes = size * arguments.shape.chunk * M::kWidth;
  b.rows.stage = bytes <= kMostStaged ? from_arena<char>(at, bytes) : nullptr;
  b.arena = at;
  b.arena_bytes = static_cast<int>(arguments.shared_bytes - (at - memory));
}

__device__ inline void open_rows(Block& b, const Team& team, int problem) {
  const CudaProblems& p = b.arguments->problems;
  const Shape& shape = b.arguments->shape;
  const size_t size = p.type == ScoreType::kFloat32 ? 4 : 2;
  b.problem = problem;
  Rows& rows = b.rows;
  rows.data = static_cast<const char*>(p.scores) + size * problem * p.problem_stride;
  rows.counted =
      p.counted == nullptr ? nullptr : p.counted + static_cast<int64_t>(problem) * p.tokens;
  rows.token_stride = p.token_stride;
  rows.expert_stride = p.expert_stride;
  rows.type = p.type;
  rows.tokens = p.tokens;
  rows.experts = p.experts;
  rows.first = min(p.tokens, team.rank * shape.chunk);
  rows.last = min(p.tokens, rows.first + shape.chunk);
  const auto address = reinterpret_cast<uintptr_t>(rows.data);
  const bool fours = p.expert_stride == 1 && p.experts % 4 == 0 && p.token_stride % 4 == 0 &&
                     address % (4 * size) == 0;
  rows.base = fours ? static_cast<const char*>(rows.data) : nullptr;
  rows.pitch = static_cast<int64_t>(size) * p.token_stride;
  rows.origin = 0;
  rows.mend = 0;
  rows.lift = 1;
  rows.lowest = 0;
  b.turn = b.place = b.infeasible = b.forbid = 0;
  b.int_scratch[0] = 0;
  int bits = 0;
  while (shape.chunk >> bits != 0) ++bits;
  b.fixed_bits = max(0, min(24, 30 - bits));
  bits = 0;
  while (p.tokens >> bits != 0) ++bits;
  b.curve_bits = max(0, min(24, 31 - bits));
  const int64_t products = static_cast<int64_t>(p.tokens) * p.experts * p.experts;
  b.spread_every = static_cast<int>(products >> 23) | 1;
  const long long most = b.arguments->max_work;
  b.work_left = most > 0 ? most : 0x7fffffffffffffffll;
}

__device__ inline void open_bounds(Block& b) {
  const CudaProblems& p = b.arguments->problems;
  int sum = 0;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    const int floor = p.tokens / p.experts;
    b.lower[e] = p.lower != nullptr ? p.lower[e] : floor;
    b.upper[e] = p.upper != nullptr ? min(p.upper[e], p.tokens)
                                    : floor + (p.tokens % p.experts != 0 ? 1 : 0);
    b.lower[e] = min(b.lower[e], b.upper[e]);
    sum += b.upper[e];
    b.hard[e] = 0;
  }
  sum = block_sum(sum, b.int_scratch);
  if (threadIdx.x == 0) {
    b.empty = max(0, sum - p.tokens);
    b.int_scratch[0] = 0;
  }
  __syncthreads();
}

// Scales, from what the first look found.
__device__ inline void set_scales(Block& b) {
  const Head head = *b.work.head;
  const NonFinite rule = b.arguments->problems.non_finite;
  Rows& rows = b.rows;
  const bool any = head.highest != 0;
  const float lowest = any ? unordered(~head.lowest) : 0;
  const float highest = any ? unordered(head.highest) : 0;
  rows.lowest = lowest;
  if (rule == NonFinite::kForbid && head.forbidden != 0) {
    rows.mend = head.hopeless != 0 ? 1 : 2;
    b.infeasible = head.hopeless != 0;
    b.forbid = head.hopeless == 0;
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
  b.soft_scale = ldexp(1.0, -exponent);
  b.exponent = exponent;
  b.range = (static_cast<double>(highest) - lowest) * rows.lift * b.soft_scale;
  b.counted = static_cast<int>(head.counted);
  b.padding = rows.tokens - b.counted;
}

// Deviation of the scores about their expert's mean, from a sample of tokens.
__device__ inline void sample_deviation(Block& b) {
  const Rows& rows = b.rows;
  const int parts = max(1, static_cast<int>(blockDim.x) / b.experts);
  const int samples = min(rows.tokens, max(32, 1024 / b.experts));
  auto* sums = reinterpret_cast<double*>(b.arena);
  const int columns = parts * b.experts;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    const int e = i % b.experts;
    double sum = 0, square = 0;
    for (int k = i / b.experts; k < samples; k += parts) {
      const int token = static_cast<int>(static_cast<int64_t>(k) * rows.tokens / samples);
      const float value = mended(rows, raw_score(rows, token, e));
      const double x = isfinite(value) && is_counted(rows, token) ? value * b.soft_scale : 0;
      sum += x;
      square += x * x;
    }
    sums[2 * i] = sum;
    sums[2 * i + 1] = square;
  }
  __syncthreads();
  double variance = 0;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    double sum = 0, square = 0;
    for (int part = 0; part < parts; ++part) {
      sum += sums[2 * (part * b.experts + e)];
      square += sums[2 * (part * b.experts + e) + 1];
    }
    variance += fmax(0.0, square - sum * sum / samples);
  }
  variance = block_sum(variance, b.sum_scratch) / (static_cast<double>(samples) * b.experts);
  if (threadIdx.x == 0) {
    b.deviation = fmax(sqrt(variance), fmax(b.range * 1e-3, 1e-12));
  }
  __syncthreads();
}

// The start prices in soft units. True: they say something.
__device__ inline bool load_start(Block& b, const double* start) {
  double low = 1e300, high = -1e300;
  bool bad = start == nullptr;
  for (int e = threadIdx.x; e < b.experts && start != nullptr; e += blockDim.x) {
    b.price[e] = start[e];
    bad = bad || !isfinite(b.price[e]);
    low = fmin(low, b.price[e]);
    high = fmax(high, b.price[e]);
  }
  bad = __syncthreads_or(bad) != 0;
  low = -block_max(-low, b.sum_scratch);
  high = block_max(high, b.sum_scratch);
  if (bad || !(high > low)) {
    for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.price[e] = 0;
    __syncthreads();
    return false;
  }
  const double scale = b.soft_scale * b.rows.lift;
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    b.price[e] = fmin((b.price[e] - low) * scale, b.forbid ? 1e3 : 2.0);
  }
  __syncthreads();
  return true;
}

// Soft prices become quanta.
template <class N>
__device__ inline void round_prices(Block& b) {
  const double scale = ldexp(1.0, N::bits(b));
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) {
    b.price[e] = rint(fmin(b.price[e] * scale, N::highest_price()));
  }
  if (threadIdx.x == 0) b.exact_scale = ldexp(1.0, N::bits(b) - b.exponent);
  __syncthreads();
}

// And back.
template <class N>
__device__ inline void soften_prices(Block& b) {
  __syncthreads();
  const double scale = ldexp(1.0, -N::bits(b));
  for (int e = threadIdx.x; e < b.experts; e += blockDim.x) b.price[e] *= scale;
  __syncthreads();
}

}  // namespace ballast::assignment::exact_cuda
