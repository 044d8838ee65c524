// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_paths_cuda.cuh"
#include "ballast/assignment/on_chip_prices_cuda.cuh"

// Tokens that lose little at another expert, listed for one block. on_chip_nearby_cuda.cuh moves
// them.
namespace ballast::assignment::on_chip {

// How an expert is reached: by what is lost on the way, then by the token (group) that moves last.
// In one number, which orders so.
using ShortLabel = unsigned;
constexpr int kFewMoves = 3, kShortMoves = 7;  // of a path: at first, and where that moves nothing
constexpr int kShortUnits = 1 << 17;           // of loss, within the reach of the lists
constexpr int kMostShortRounds = 8;
constexpr int kDirectRounds = 6;
constexpr ShortLabel kNoShortPath = 0xffffffffu;
// Of a wish: its root, and how much of a loss is too fine to fit beside it.
constexpr int kWishShift = 25;
constexpr unsigned kWishRoot = 127u << kWishShift;
constexpr int kWishCoarse = 2;
constexpr ShortLabel kShortGroup = (1u << kGroupBits) - 1;
constexpr uint8_t kMoved = 0xff;  // no expert
static_assert(kOnChipExperts <= 128 && (kShortMoves + 1) * kShortUnits <= 1 << (31 - kGroupBits) &&
              (kShortMoves + 1) * kShortUnits <= 1 << (18 + kWishCoarse));

// Labels of all experts: after no move, one, two and so on.
template <int kExperts>
struct ShortLabels {
  ShortLabel after[kShortMoves + 1][kExperts];

  // The shortest after at most `moves`, and of these as few as can be: so no path meets itself.
  __device__ ShortLabel within(int moves, int expert) const {
    ShortLabel least = after[0][expert];
#pragma unroll
    for (int i = 1; i <= kShortMoves; ++i) {
      if (i > moves) break;
      const ShortLabel label = after[i][expert];
      least = (label | kShortGroup) < least ? label : least;
    }
    return least;
  }
};

// What the first block works with, in its arena.
template <int kExperts>
struct Nearby {
  NearLists lists;
  ShortLabels<kExperts> label;
  int surplus[kExperts];  // tokens above the share; below 0: room
  // The best path through the expert behind a root, and with the token that it takes from the root:
  // root, loss and end in one number, which orders so.
  unsigned through[kExperts], with[kGroups];
  alignas(16) unsigned wish[kExperts];  // paths, by the expert with room at their end
  int leaving[kExperts];                // how many want to leave a root
  // The best direct moves into an expert, and out of one. A move's slot is its token's group, or
  // the other expert, modulo kSlots.
  static constexpr int kSlots = 512 / kExperts;
  alignas(16) unsigned into[kExperts][kSlots], out_of[kExperts][kSlots];
  uint16_t by[kExperts];     // the token that moves last to get here
  uint8_t before[kExperts];  // its expert; a root's is itself
  uint8_t to[kGroups];       // where a token has moved; kMoved: it has not
};

// Where blocks list for the first one, each in places of its own (block + i * blocks): so nobody
// counts beforehand.
template <int kExperts, Meeting kMeeting>
__device__ inline NearLists& first_lists(Chip<kExperts, kMeeting>& c) {
  static_assert(sizeof(Nearby<kExperts>) <= kArenaBytes);
  if (c.at_desk()) return c.desk->near;
  auto* arena = cooperative_groups::this_cluster().map_shared_rank(c.arena(), 0);
  return reinterpret_cast<Nearby<kExperts>*>(arena)->lists;
}

// A row at its best expert.
struct NearRow {
  int row, own;
  float top;    // what it is worth there
  unsigned in;  // this thread's scores that are within reach of that, without its own
};

template <int kExperts, Meeting kMeeting>
__device__ inline NearRow look_nearby(const Chip<kExperts, kMeeting>& c, int row, float reach,
                                      float (&value)[kValues]) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  const int lane = threadIdx.x % kLanes;
  read_row(c, row, value);
  float best = -INFINITY;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    value[i] -= c.price[expert_at<kExperts>(lane, i)];
    best = fmaxf(best, value[i]);
  }
  NearRow near{row, 0, lanes_max(best, kLanes), 0};
  unsigned at = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    at |= value[i] == near.top ? 1u << i : 0u;
    near.in |= near.top - value[i] < reach ? 1u << i : 0u;
  }
  const unsigned tied = __ballot_sync(kAll, at != 0) & row_lanes<kExperts>();
  const int chooses = choose_bit(tied, c.first + row);
  const int chosen = at != 0 ? choose_bit(at, c.first + row) : 0;
  near.own = __shfl_sync(kAll, expert_at<kExperts>(lane, chosen), chooses);
  if (static_cast<int>(threadIdx.x % 32) == chooses) near.in &= ~(1u << chosen);
  if (row >= c.count) near.in = 0;
  return near;
}

// Lists a row's pairs; `listed` are the groups and pairs before it, packed as lists are counted.
template <int kExperts, Meeting kMeeting>
__device__ inline void list_row(Chip<kExperts, kMeeting>& c, NearLists& lists, const NearRow& near,
                                float unit, const float (&value)[kValues], int& listed) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  const int lane = threadIdx.x % kLanes, pairs = kPairs / c.blocks, groups = kGroups / c.blocks;
  int before = __popc(near.in), total = 0;
  const int mine = before;
  for (int step = 1; step < kLanes; step *= 2) {
    const int other = __shfl_up_sync(kAll, before, step, kLanes);
    if (lane >= step) before += other;
  }
  const int length = __shfl_sync(kAll, before, kLanes - 1, kLanes);
  int place = exact_cuda::block_prefix(lane == 0 && length > 0 ? length | 1 << kPairBits : 0,
                                       c.int_scratch, total);
  place = listed + __shfl_sync(kAll, place, 0, kLanes);
  listed += total;
  const int group = place >> kPairBits;
  if (lane == 0 && length > 0 && group < groups) {
    lists.own[group * c.blocks + c.rank] = static_cast<uint8_t>(near.own);
    lists.token[group * c.blocks + c.rank] = static_cast<uint16_t>(c.first + near.row);
  }
  int k = (place & ((1 << kPairBits) - 1)) + before - mine;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    if ((near.in >> i & 1u) == 0) continue;
    NearPair pair{};
    pair.loss = group < groups ? __float2uint_rn((near.top - value[i]) * unit) : kNoShortPath;
    pair.group = static_cast<uint16_t>(group * c.blocks + c.rank);
    pair.to = static_cast<uint8_t>(expert_at<kExperts>(lane, i));
    if (k < pairs) lists.pair[k * c.blocks + c.rank] = pair;
    ++k;
  }
}

// Each row goes to its best expert at c.price, in c.own. The first block is told how many are at
// each, and of those with other experts within `reach`, as far as this block's places suffice.
template <int kExperts, Meeting kMeeting>
__device__ void list_nearby(Chip<kExperts, kMeeting>& c, float reach) {
  NearLists& lists = first_lists(c);
  if (threadIdx.x < kExperts) c.counts[threadIdx.x] = 0;
  __syncthreads();
  int listed = 0;
#pragma unroll 1
  for (int base = 0; base < c.count; base += Layout<kExperts>::kTogether) {
    float value[kValues];
    const NearRow near =
        look_nearby(c, base + threadIdx.x / Layout<kExperts>::kLanes, reach, value);
    if (threadIdx.x % Layout<kExperts>::kLanes == 0 && near.row < c.count) {
      c.own[near.row] = static_cast<uint8_t>(near.own);
      atomicAdd(&c.counts[near.own], 1);
    }
    list_row(c, lists, near, kShortUnits / reach, value, listed);
  }
  __syncthreads();
  Note<kExperts>& note = note_for(c, 0, c.turn);
  if (threadIdx.x < kExperts)
    note.count[threadIdx.x] = static_cast<uint16_t>(c.counts[threadIdx.x]);
  if (threadIdx.x == 0) {
    note.list[0] = min(listed >> kPairBits, kGroups / c.blocks);
    note.list[1] = min(listed & ((1 << kPairBits) - 1), kPairs / c.blocks);
  }
}

}  // namespace ballast::assignment::on_chip
