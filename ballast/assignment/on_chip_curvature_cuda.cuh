// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_team_cuda.cuh"

// Newton's step: how the loads follow the prices is a matrix, the sum over tokens of products of
// their probabilities. Tensor cores make it; conjugate gradients solve with it.
namespace ballast::assignment::on_chip {

// Four numbers in bf16.
__device__ inline uint2 four_of(const float* x) {
  const __nv_bfloat162 low = __floats2bfloat162_rn(x[0], x[1]);
  const __nv_bfloat162 high = __floats2bfloat162_rn(x[2], x[3]);
  return make_uint2(*reinterpret_cast<const unsigned*>(&low),
                    *reinterpret_cast<const unsigned*>(&high));
}

__device__ inline float4 floats_of(uint2 four) {
  const float2 low = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&four.x));
  const float2 high = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&four.y));
  return make_float4(low.x, low.y, high.x, high.y);
}

// A row's probabilities in bf16, in the arena.
template <int kExperts, Meeting kMeeting>
__device__ inline void stage_row(Chip<kExperts, kMeeting>& c, int row, const float (&q)[kValues]) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  auto* stage = reinterpret_cast<__nv_bfloat16*>(c.arena()) + row * Layout<kExperts>::kStagePitch;
#pragma unroll
  for (int j = 0; j < kValues / 4; ++j) {
    reinterpret_cast<uint2*>(stage)[j * kLanes + threadIdx.x % kLanes] = four_of(q + 4 * j);
  }
}

// This block's sums of products, [E, E] at the arena's beginning, over the rows staged there. Each
// warp has a tile of 32 x 32; where there are fewer tiles than warps these share the rows.
template <int kExperts, Meeting kMeeting>
__device__ void multiply_rows(Chip<kExperts, kMeeting>& c) {
  using C = Layout<kExperts>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tile = warp % (C::kSideTiles * C::kSideTiles);
  const int group = warp / (C::kSideTiles * C::kSideTiles);
  const int m = tile / C::kSideTiles * 32, n = tile % C::kSideTiles * 32;
  const auto* stage = reinterpret_cast<const __nv_bfloat16*>(c.arena());
  const int upper = lane / 8 % 2 * 8, far = lane / 16 * 8, near = lane % 8;
  float sum[2][4][4] = {};
  for (int k = 16 * group; k < c.count; k += 16 * C::kTileGroups) {
    unsigned a[2][4], b[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      load_transposed(a[i], stage + (k + far + near) * C::kStagePitch + m + 16 * i + upper);
      load_transposed(b[i], stage + (k + upper + near) * C::kStagePitch + n + 16 * i + far);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        multiply_add(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
  __syncthreads();                      // the sums take the place of the rows
  if constexpr (C::kTileGroups == 1) {  // a large matrix travels in bf16
    auto* rows = reinterpret_cast<__nv_bfloat162*>(c.arena());
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = ((m + 16 * i + lane / 4) * kExperts + n + 8 * j) / 2 + lane % 4;
        rows[at] = __floats2bfloat162_rn(sum[i][j][0], sum[i][j][1]);
        rows[at + 4 * kExperts] = __floats2bfloat162_rn(sum[i][j][2], sum[i][j][3]);
      }
    }
    return;
  }
  float* slot = reinterpret_cast<float*>(c.arena()) + group * kExperts * kExperts;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float* at = slot + (m + 16 * i + lane / 4) * kExperts + n + 8 * j + lane % 4 * 2;
      *reinterpret_cast<float2*>(at) = make_float2(sum[i][j][0], sum[i][j][1]);
      *reinterpret_cast<float2*>(at + 8 * kExperts) = make_float2(sum[i][j][2], sum[i][j][3]);
    }
  }
  __syncthreads();
  if constexpr (C::kTileGroups > 1) {
    auto* slots = reinterpret_cast<float*>(c.arena());
    for (int i = threadIdx.x; i < kExperts * kExperts; i += kThreads) {
      float all = 0;
#pragma unroll
      for (int g = 0; g < C::kTileGroups; ++g) all += slots[g * kExperts * kExperts + i];
      slots[i] = all;
    }
  }
}

// The entries that this thread has of the matrix over all blocks: kHeld of row `row()`, `wide` at a
// time.
template <int kExperts>
struct Curvature {
  using C = Layout<kExperts>;
  static constexpr int kWide = C::kHeld < 4 ? C::kHeld : 4;
  using Some = std::conditional_t<kWide == 4, float4, float2>;
  float held[C::kHeld];

  __device__ static int row() { return threadIdx.x / C::kSplit; }
  __device__ static int column(int j) {
    return kWide * (j / kWide * C::kSplit + threadIdx.x % C::kSplit) + j % kWide;
  }

  // What blocks from `first` on have at `at` of their arenas, asked for at once.
  static constexpr int kAsked = 8;
  template <Meeting kMeeting, typename Asked>
  __device__ static void ask(Chip<kExperts, kMeeting>& c, int first, int at,
                             Asked (&found)[kAsked]) {
    const auto cluster = cooperative_groups::this_cluster();
#pragma unroll
    for (int i = 0; i < kAsked; ++i) {
      found[i] = Asked{};
      if (first + i < c.blocks)
        found[i] =
            reinterpret_cast<const Asked*>(cluster.map_shared_rank(c.arena(), first + i))[at];
    }
  }

  // In a cluster it arrives at the barrier when it has read the arenas; the caller waits there
  // before they change.
  template <Meeting kMeeting>
  __device__ void collect(Chip<kExperts, kMeeting>& c) {
    __syncthreads();
    if (c.at_desk()) {
      divide_sums_at_desk(c);
    } else {
      meet(c);
      if constexpr (C::kTileGroups > 1) {
        add_blocks(c);
      } else {
        divide_sums(c);
      }
      cooperative_groups::this_cluster().barrier_arrive();
    }
#pragma unroll
    for (int j = 0; j < C::kHeld; ++j) {
      if (column(j) == row()) held[j] = 0;
    }
  }

  // A small matrix: each thread adds its own entries of all blocks.
  template <Meeting kMeeting>
  __device__ void add_blocks(Chip<kExperts, kMeeting>& c) {
#pragma unroll
    for (int j = 0; j < C::kHeld; j += kWide) {
#pragma unroll
      for (int i = 0; i < kWide; ++i) held[j + i] = 0;
      for (int first = 0; first < c.blocks; first += kAsked) {
        Some found[kAsked];
        ask(c, first, (row() * kExperts + column(j)) / kWide, found);
#pragma unroll
        for (int i = 0; i < kWide * kAsked; ++i)
          held[j + i % kWide] += reinterpret_cast<const float*>(&found[i / kWide])[i % kWide];
      }
    }
  }

  // A large one, in bf16: each block adds a part for all.
  template <Meeting kMeeting>
  __device__ void divide_sums(Chip<kExperts, kMeeting>& c) {
    const auto cluster = cooperative_groups::this_cluster();
    const int part = kExperts * kExperts / 4 / c.blocks;  // in fours
    auto* own = reinterpret_cast<uint2*>(c.arena());
    for (int i = threadIdx.x; i < part; i += kThreads) {
      float sum[4] = {};
      for (int first = 0; first < c.blocks; first += kAsked) {
        uint2 found[kAsked];
        ask(c, first, c.rank * part + i, found);
#pragma unroll
        for (int block = 0; block < kAsked; ++block) {
          const float4 four = floats_of(found[block]);
          sum[0] += four.x;
          sum[1] += four.y;
          sum[2] += four.z;
          sum[3] += four.w;
        }
      }
      own[c.rank * part + i] = four_of(sum);
    }
    cluster.sync();
    uint2 found[C::kHeld / 4];
#pragma unroll
    for (int j = 0; j < C::kHeld / 4; ++j) {
      const int at = (row() * kExperts + column(4 * j)) / 4;
      found[j] = cluster.map_shared_rank(own, at / part)[at];
    }
#pragma unroll
    for (int j = 0; j < C::kHeld / 4; ++j) {
      const float4 four = floats_of(found[j]);
      held[4 * j] = four.x;
      held[4 * j + 1] = four.y;
      held[4 * j + 2] = four.z;
      held[4 * j + 3] = four.w;
    }
  }

  // The same through device memory, in bf16 whatever the size. Nobody writes there again before
  // all have met once more.
  template <Meeting kMeeting>
  __device__ void divide_sums_at_desk(Chip<kExperts, kMeeting>& c) {
    constexpr int kFours = kExperts * kExperts / 4;
    Desk<kExperts>& desk = *c.desk;
    for (int i = threadIdx.x; i < kFours; i += kThreads) {
      if constexpr (C::kTileGroups > 1) {
        desk.products[c.rank][i] = four_of(reinterpret_cast<const float*>(c.arena()) + 4 * i);
      } else {
        desk.products[c.rank][i] = reinterpret_cast<const uint2*>(c.arena())[i];
      }
    }
    meet(c);
    const int part = kFours / c.blocks, groups = kThreads / part;  // powers of two
    const int i = threadIdx.x % part, group = threadIdx.x / part;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (int block = group; block < c.blocks; block += groups) {
      const float4 four = floats_of(desk.products[block][c.rank * part + i]);
      sum.x += four.x;
      sum.y += four.y;
      sum.z += four.z;
      sum.w += four.w;
    }
    auto* sums = reinterpret_cast<float4*>(c.arena());  // [groups, part]
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int k = threadIdx.x; k < 4 * part; k += kThreads) {
      float all = 0;
      for (int other = 0; other < groups; ++other)
        all += reinterpret_cast<const float*>(sums)[other * part * 4 + k];
      reinterpret_cast<__nv_bfloat16*>(desk.curvature)[c.rank * part * 4 + k] =
          __float2bfloat16_rn(all);
    }
    meet(c);
#pragma unroll
    for (int j = 0; j < C::kHeld; j += 2) {
      const float2 two = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(
          desk.curvature)[(row() * kExperts + column(j)) / 2]);
      held[j] = two.x;
      held[j + 1] = two.y;
    }
  }

  // c.product = what lies beside the diagonal, times c.direction. All threads; ends in step.
  template <Meeting kMeeting>
  __device__ void apply(Chip<kExperts, kMeeting>& c) const {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < C::kHeld; j += kWide) {
      const Some some = *reinterpret_cast<const Some*>(c.direction + column(j));
#pragma unroll
      for (int i = 0; i < kWide; ++i)
        sum = fmaf(held[j + i], reinterpret_cast<const float*>(&some)[i], sum);
    }
    sum = lanes_sum(sum, C::kSplit);
    if (threadIdx.x % C::kSplit == 0) c.product[row()] = sum;
    __syncthreads();
  }
};

// A vector over the experts: lane l of a warp has those at l, l + 32, ...
template <int kExperts>
struct Vector {
  static constexpr int kEach = kExperts / 32;
  float at[kEach];
  template <typename Function>
  __device__ static Vector of(Function function) {
    Vector v;
#pragma unroll
    for (int i = 0; i < kEach; ++i) v.at[i] = function(threadIdx.x % 32 + 32 * i);
    return v;
  }
  __device__ void write(float* to) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) to[threadIdx.x % 32 + 32 * i] = at[i];
  }
  __device__ float times(const Vector& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum = fmaf(at[i], other.at[i], sum);
    return sum;
  }
};

// Solves (diagonal - beside) x = r roughly. The first warp has the vectors, all threads multiply.
template <int kExperts, Meeting kMeeting>
__device__ Vector<kExperts> conjugate_gradients(Chip<kExperts, kMeeting>& c,
                                                const Curvature<kExperts>& curvature,
                                                Vector<kExperts> r, float damping) {
  using V = Vector<kExperts>;
  constexpr int kMostSteps = 24;
  const bool leads = threadIdx.x < 32;
  const V diagonal = V::of([&](int e) { return c.diagonal[e] + damping; });
  V u, p, s, x;
  float last = 1, step = 1, start = 0;
#pragma unroll
  for (int i = 0; i < V::kEach; ++i) {
    u.at[i] = __fdividef(r.at[i], diagonal.at[i]);
    p.at[i] = s.at[i] = x.at[i] = 0;
  }
  if (threadIdx.x == 0) c.flag = 1;
  for (int i = 0; i < kMostSteps; ++i) {
    if (leads) u.write(c.direction);
    __syncthreads();
    if (c.flag == 0) break;
    curvature.apply(c);
    if (!leads) continue;
    V w = V::of([&](int e) { return c.product[e]; });
#pragma unroll
    for (int k = 0; k < V::kEach; ++k) w.at[k] = fmaf(diagonal.at[k], u.at[k], -w.at[k]);
    const float power = lanes_sum(r.times(u), 32), bend = lanes_sum(w.times(u), 32);
    if (i == 0) start = power;
    const float beta = i == 0 ? 0 : __fdividef(power, last);
    const float divisor = i == 0 ? bend : bend - __fdividef(beta * power, step);
    if (!(power > 1e-2f * start) || !(divisor > 0) || !(power < 1e30f)) {
      if (threadIdx.x == 0) c.flag = 0;
      continue;
    }
    step = __fdividef(power, divisor);
    last = power;
#pragma unroll
    for (int k = 0; k < V::kEach; ++k) {
      p.at[k] = fmaf(beta, p.at[k], u.at[k]);
      s.at[k] = fmaf(beta, s.at[k], w.at[k]);
      x.at[k] = fmaf(step, p.at[k], x.at[k]);
      r.at[k] = fmaf(-step, s.at[k], r.at[k]);
      u.at[k] = __fdividef(r.at[k], diagonal.at[k]);
    }
  }
  return x;
}

// A change of a price beyond this, by the temperature, passes tokens whose probabilities the step
// did not see.
constexpr float kLargeChange = 6;

// What a step of Newton's was like.
struct Step {
  float trace;    // of the matrix
  float largest;  // change of a price that it asked for, by the temperature
};

// Changes c.price by Newton's step after a pass with rows staged.
template <int kExperts, Meeting kMeeting>
__device__ Step newton_step(Chip<kExperts, kMeeting>& c, float tau) {
  using V = Vector<kExperts>;
  multiply_rows(c);
  Curvature<kExperts> curvature;
  curvature.collect(c);
  float beside = 0;
#pragma unroll
  for (int j = 0; j < Layout<kExperts>::kHeld; ++j) beside += curvature.held[j];
  beside = lanes_sum(beside, Layout<kExperts>::kSplit);
  if (threadIdx.x % Layout<kExperts>::kSplit == 0) c.diagonal[Curvature<kExperts>::row()] = beside;
  __syncthreads();
  const V diagonal = V::of([&](int e) { return c.diagonal[e]; });
  float trace = 0;
#pragma unroll
  for (int i = 0; i < V::kEach; ++i) trace += diagonal.at[i];
  trace = lanes_sum(trace, 32);
  const V over =
      V::of([&](int e) { return e < c.experts ? c.load[e] - static_cast<float>(c.even) : 0.0f; });
  const float damping = 1e-3f * trace / static_cast<float>(c.experts) + 1e-6f;
  const V x = conjugate_gradients(c, curvature, over, damping);
  if (threadIdx.x < 32) {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < V::kEach; ++i) largest = fmaxf(largest, fabsf(x.at[i]));
    largest = lanes_max(largest, 32);
    const float factor = largest > kLargeChange ? tau * kLargeChange / largest : tau;
    if (threadIdx.x == 0) c.largest_change = largest;
#pragma unroll
    for (int i = 0; i < V::kEach; ++i) c.price[threadIdx.x + 32 * i] += factor * x.at[i];
  }
  if (!c.at_desk()) cooperative_groups::this_cluster().barrier_wait();
  __syncthreads();
  return {trace, c.largest_change};
}

}  // namespace ballast::assignment::on_chip
