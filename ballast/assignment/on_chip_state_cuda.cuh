// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_warp_cuda.cuh"
#include "ballast/assignment/on_chip_cuda.h"
#include "ballast/assignment/score_reader_cuda.cuh"

// What the on-chip solver works with. A problem belongs to a team of blocks
// (on_chip_team_cuda.cuh); each holds an equal share of the tokens' scores in its shared memory
// from the first read to the result. All blocks compute the same prices from the same sums, in the
// same order, so that they never disagree.
namespace ballast::assignment::on_chip {

using exact_cuda::kAll;
using exact_cuda::lanes_max;
using exact_cuda::lanes_sum;

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kValues = 16;    // scores of a row that a thread has
constexpr int kPairs = 4096;   // of tokens and experts that a repair can hold
constexpr int kGroups = 1536;  // tokens in it
constexpr int kPairBits = 18;  // of a count of pairs, in one integer with that of tokens
constexpr int kArenaBytes = 69632;

struct Arguments {
  CudaProblems problems;
  CudaAssignments results;
  OnChipOptions options;
  int* solved;  // [problems]
  char* desks;  // of teams that are no clusters, each desk_bytes; null: clusters
  size_t desk_bytes;
  int blocks;      // of a team, a power of two
  int teams;       // that work at a time
  int rows;        // tokens that a block has room for, a multiple of 16
  float quantile;  // a share 1/E of a normal distribution lies above it
};

// What a block tells the others of its team.
template <int kExperts>
struct alignas(16) Note {
  float load[kExperts];      // sums over its tokens
  uint16_t count[kExperts];  // its tokens whose expert this is
  double value[4];           // further sums and maxima
  int list[2];               // groups and pairs
};

// Sums over tokens for the certificate, on the scores themselves. kNorm: of the chosen scores'
// magnitudes.
enum Worth { kPrimal, kSlack, kBlind, kNorm, kWorths };

template <int kExperts>
struct Desk;

// How threads share the work.
template <int kExperts>
struct Layout {
  static constexpr int kLanes = kExperts / kValues;    // threads that read a row
  static constexpr int kTogether = kThreads / kLanes;  // rows at a time
  static constexpr int kSplit = kThreads / kExperts;   // threads for a row of the curvature
  static constexpr int kHeld = kExperts / kSplit;      // its entries that each has
  static constexpr int kStagePitch = kExperts + 8;     // of rows of probabilities in the arena
  static constexpr int kSideTiles = kExperts / 32;     // of 32 x 32 products
  static constexpr int kTileGroups = kWarps / (kSideTiles * kSideTiles);
};

// Where the blocks of a team meet. Known when a kernel is compiled: so each reads its own code
// alone, which takes a good part of a launch when it comes from device memory.
enum class Meeting { kCluster, kDesk };

// Shared memory of a block, before the scores [rows, kExperts], the notes of a cluster and the
// arena.
template <int kExperts, Meeting kMeeting>
struct alignas(128) Chip {
  double double_scratch[32];
  double worth[kWorths];  // of the assignment
  int int_scratch[32];
  float warp_most[kWarps];
  float warp_sums[kWarps][kExperts];
  double exact_price[kExperts];  // c.quanta as scores
  alignas(16) float price[kExperts];
  float cold_price[kExperts];  // where to begin without start prices
  float best_price[kExperts];  // those with the least imbalance so far
  float load[kExperts];        // sums of probabilities
  float diagonal[kExperts];
  alignas(16) float direction[kExperts];
  float product[kExperts];
  int counts[kExperts];      // of this block
  int hard[kExperts];        // of all
  int quanta[kExperts];      // prices
  uint8_t own[kOnChipRows];  // expert of each row
  int flag;
  float largest_change;        // of a price, by the last of Newton's steps
  int verdict;                 // of a repair, told to all blocks
  int experts, tokens, even;   // `even`: tokens of each expert
  int blocks, rank, rows;      // of the team; this one; tokens of each
  int first, count;            // this block's tokens
  int turn;                    // of the notes
  int sum_turn;                // of the desk's sums
  unsigned goal;               // of the desk's counter
  Desk<kExperts>* desk;        // of a team that meets there
  float deviation, largest;    // of scores about their means; largest magnitude
  float own_largest;           // of this block's scores
  int own_refused;             // 1: some of them are not finite
  float own_squares, squares;  // Read::squares of this block; of all
  double unit;                 // a power of two: scores given are those here times this
  float exact_scale;           // scores times this, rounded, are quanta

  __device__ static constexpr bool at_desk() { return kMeeting == Meeting::kDesk; }

  // Computed, not kept: so the compiler knows that they are shared memory.
  __device__ float* scores() { return reinterpret_cast<float*>(this + 1); }
  __device__ const float* scores() const { return reinterpret_cast<const float*>(this + 1); }
  __device__ Note<kExperts>* notes() {  // [2, blocks], of a cluster
    return reinterpret_cast<Note<kExperts>*>(scores() + rows * kExperts);
  }
  __device__ char* arena() {
    return reinterpret_cast<char*>(notes() + (at_desk() ? 0 : 2 * blocks));
  }
};

// The expert of a thread's i-th score: threads of a row take four at a time in turn.
template <int kExperts>
__device__ constexpr int expert_at(int lane, int i) {
  return 4 * (i / 4 * Layout<kExperts>::kLanes + lane) + i % 4;
}

// Where four scores of a row are, in fours: no two threads that read together meet in a bank.
template <int kExperts>
__device__ inline int four_at(int row, int four) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  return row * (kExperts / 4) + (four ^ (row % (8 / kLanes) * kLanes));
}

// This thread's scores of a row; zeros behind the last.
template <int kExperts, Meeting kMeeting>
__device__ inline void read_row(const Chip<kExperts, kMeeting>& c, int row,
                                float (&value)[kValues]) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  const int lane = threadIdx.x % kLanes;
#pragma unroll
  for (int j = 0; j < kValues / 4; ++j) {
    const float4 x =
        row < c.count
            ? reinterpret_cast<const float4*>(c.scores())[four_at<kExperts>(row, j * kLanes + lane)]
            : make_float4(0, 0, 0, 0);
    value[4 * j] = x.x;
    value[4 * j + 1] = x.y;
    value[4 * j + 2] = x.z;
    value[4 * j + 3] = x.w;
  }
}

template <int kExperts, Meeting kMeeting>
__device__ inline float score_at(const Chip<kExperts, kMeeting>& c, int row, int expert) {
  return c.scores()[4 * four_at<kExperts>(row, expert / 4) + expert % 4];
}

// One of the set bits of `tied`, at random but always the same for a token.
__device__ inline int choose_bit(unsigned tied, int token) {
  const int count = __popc(tied);
  if (count > 1) {
#pragma unroll 1
    for (unsigned skip = __umulhi(exact_cuda::mix(token, 0), count); skip > 0; --skip)
      tied &= tied - 1;
  }
  return __ffs(tied) - 1;
}

// Lanes that read the same row as this one.
template <int kExperts>
__device__ inline unsigned row_lanes() {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  return ((1u << kLanes) - 1u) << (threadIdx.x % 32 / kLanes * kLanes);
}

// Sums over the rows of a warp, for each of this thread's columns: halves change hands, so that 32
// sums cost about 32 shuffles. Afterwards value[0 .. left) belong to columns from `base` on.
struct Columns {
  int base, left;
};
template <int kStep, int kLanes, int kCount>
__device__ inline Columns sum_columns(float* value, int base) {
  if constexpr (kStep < kLanes) {
    return {base, kCount};
  } else {
    constexpr int kHalf = kCount / 2;
    const bool upper = (threadIdx.x & kStep) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float sent = upper ? value[i] : value[i + kHalf];
      const float kept = upper ? value[i + kHalf] : value[i];
      value[i] = kept + __shfl_xor_sync(kAll, sent, kStep);
    }
    return sum_columns<kStep / 2, kLanes, kHalf>(value, base + (upper ? kHalf : 0));
  }
}

// Leaves this warp's sums of columns in c.warp_sums.
template <int kExperts, Meeting kMeeting>
__device__ inline void leave_columns(Chip<kExperts, kMeeting>& c, float (&value)[kValues]) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  const Columns mine = sum_columns<16, kLanes, kValues>(value, 0);
#pragma unroll
  for (int i = 0; i < kExperts / 32; ++i) {
    c.warp_sums[threadIdx.x / 32][expert_at<kExperts>(threadIdx.x % kLanes, mine.base + i)] =
        value[i];
  }
}

}  // namespace ballast::assignment::on_chip
