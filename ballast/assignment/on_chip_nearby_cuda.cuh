// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_paths_cuda.cuh"
#include "ballast/assignment/on_chip_prices_cuda.cuh"

// A balanced assignment at the price of a small gap, from prices near balance: tokens that lose
// little elsewhere move along paths of a few moves, from experts with too many tokens to experts
// with room. Prices stay as they are, so the gap is what the moves lose. A token moves once.
namespace ballast::assignment::on_chip {

// How an expert is reached: by what is lost on the way, then by the token (group) that moves last.
// In one number, which orders so.
using ShortLabel = unsigned;
constexpr int kShortMoves = 3;        // of a path, about; more gained nothing
constexpr int kShortUnits = 1 << 18;  // of loss, within the reach of the lists
constexpr int kMostShortRounds = 12;
constexpr int kManyWrong = 24;  // more than 1/24 of the tokens at wrong experts are too many
constexpr ShortLabel kNoShortPath = 0xffffffffu;
constexpr ShortLabel kShortGroup = (1u << kGroupBits) - 1;
constexpr uint8_t kMoved = 0xff;  // no expert
static_assert(kOnChipExperts <= 128 && (kShortMoves + 1) * kShortUnits <= 1 << (31 - kGroupBits));

enum NearVerdict { kLeftOver, kEven, kTooMany };

// What the first block works with, in its arena.
template <int kExperts>
struct Nearby {
  NearLists lists;
  ShortLabel label[2][kExperts];  // in turn
  int surplus[kExperts];          // tokens above the share; below 0: room
  // The best path through the expert behind a root, with the token that it takes from the root, and
  // from the root; how many leave the root.
  unsigned through[kExperts], with[kGroups], from[kExperts];
  int leaving[kExperts];
  uint8_t to[kGroups];  // where a token has moved; kMoved: it has not
};

// Where blocks list for the first one, each in places of its own (block + i * blocks): so nobody
// counts beforehand.
template <int kExperts>
__device__ inline NearLists& first_lists(Chip<kExperts>& c) {
  static_assert(sizeof(Nearby<kExperts>) <= kArenaBytes);
  if (c.desk != nullptr) return c.desk->near;
  auto* arena = cooperative_groups::this_cluster().map_shared_rank(c.arena(), 0);
  return reinterpret_cast<Nearby<kExperts>*>(arena)->lists;
}

// A row at its best expert.
struct NearRow {
  int row, own;
  float top;    // what it is worth there
  unsigned in;  // this thread's scores that are within reach of that, without its own
};

template <int kExperts>
__device__ inline NearRow look_nearby(const Chip<kExperts>& c, int row, float reach,
                                      float (&value)[kValues]) {
  constexpr int kLanes = Chip<kExperts>::kLanes;
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
template <int kExperts>
__device__ inline void list_row(Chip<kExperts>& c, NearLists& lists, const NearRow& near,
                                float unit, const float (&value)[kValues], int& listed) {
  constexpr int kLanes = Chip<kExperts>::kLanes;
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
template <int kExperts>
__device__ void list_nearby(Chip<kExperts>& c, float reach) {
  NearLists& lists = first_lists(c);
  if (threadIdx.x < kExperts) c.counts[threadIdx.x] = 0;
  __syncthreads();
  int listed = 0;
#pragma unroll 1
  for (int base = 0; base < c.count; base += Chip<kExperts>::kTogether) {
    float value[kValues];
    const NearRow near = look_nearby(c, base + threadIdx.x / Chip<kExperts>::kLanes, reach, value);
    if (threadIdx.x % Chip<kExperts>::kLanes == 0 && near.row < c.count) {
      c.own[near.row] = static_cast<uint8_t>(near.own);
      atomicAdd(&c.counts[near.own], 1);
    }
    list_row(c, lists, near, kShortUnits / reach, value, listed);
  }
  __syncthreads();
  Note<kExperts>& note = note_for(c, 0, c.turn);
  if (threadIdx.x < kExperts)
    note.count[threadIdx.x] = static_cast<uint16_t>(c.counts[threadIdx.x]);
  if (threadIdx.x == 0) note.list[1] = min(listed & ((1 << kPairBits) - 1), kPairs / c.blocks);
}

// The pairs that a thread of the first block looks after.
template <int kExperts>
struct ShortPairs {
  static constexpr int kKept = kPairs / kThreads;
  unsigned loss[kKept];  // kNoShortPath: there is none
  int group[kKept], from[kKept], to[kKept];
  int used;  // of these, by some thread

  __device__ ShortPairs(Chip<kExperts>& c, const NearLists& lists, int turn) {
    int most = 0;
#pragma unroll 1
    for (int block = threadIdx.x % 32; block < c.blocks; block += 32)
      most = max(most, note_of(c, block, turn).list[1]);
    used = (lanes_max(most, 32) * c.blocks + kThreads - 1) / kThreads;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= used) break;
      const int k = static_cast<int>(threadIdx.x) + i * kThreads, block = k % c.blocks;
      loss[i] = kNoShortPath;
      if (k / c.blocks >= note_of(c, block, turn).list[1]) continue;
      const NearPair pair = lists.pair[k];
      loss[i] = pair.loss;
      group[i] = pair.group;
      to[i] = pair.to;
      from[i] = pair.loss != kNoShortPath ? lists.own[pair.group] : 0;
    }
  }

  // One more move: labels of where it leads, from `now` into `next`, which begins as `now`.
  __device__ void extend(const ShortLabel* now, ShortLabel* next) const {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= used) break;
      if (loss[i] == kNoShortPath) continue;
      const ShortLabel here = now[from[i]];
      if (here == kNoShortPath) continue;
      const unsigned lost = (here >> kGroupBits) + loss[i];
      // A shorter way, not one as short: so no path ever meets itself.
      if (lost < now[to[i]] >> kGroupBits)
        atomicMin(&next[to[i]], lost << kGroupBits | static_cast<unsigned>(group[i]));
    }
  }

  __device__ void drop_moved(const uint8_t* own) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= used) break;
      if (loss[i] != kNoShortPath && own[group[i]] == kMoved) loss[i] = kNoShortPath;
    }
  }
};

// Labels of all experts that are reached in a few moves from one with a surplus, in x.label[turn].
template <int kExperts>
__device__ int find_short(Nearby<kExperts>& x, const ShortPairs<kExperts>& pairs) {
  const int e = threadIdx.x;
  if (e < kExperts) {
    x.label[0][e] = x.label[1][e] = x.surplus[e] > 0 ? 0 : kNoShortPath;
    x.through[e] = x.from[e] = kNoShortPath;
    x.leaving[e] = 0;
  }
  __syncthreads();
  int turn = 0;
#pragma unroll 1
  for (int move = 0; move < kShortMoves; ++move) {
    if (move > 0) {
      if (e < kExperts) x.label[1 - turn][e] = x.label[turn][e];
      __syncthreads();
    }
    pairs.extend(x.label[turn], x.label[1 - turn]);
    __syncthreads();
    turn = 1 - turn;
  }
  return turn;
}

// Moves a token into each expert with room by its path. Of paths that share more than their root
// the best goes, and of those that want the same token. Where more remain at a root than its
// surplus, one goes. False: there was none.
template <int kExperts>
__device__ bool move_short(Nearby<kExperts>& x, const ShortLabel* label) {
  const int sink = threadIdx.x;
  bool wins = sink < kExperts && x.surplus[sink] < 0 && label[sink] != kNoShortPath;
  int root = sink, first = sink, taken = 0;  // `first`: the expert behind the root
  unsigned key = 0;
  if (wins) {
    for (; x.surplus[root] <= 0; root = x.lists.own[label[root] & kShortGroup]) first = root;
    taken = static_cast<int>(label[first] & kShortGroup);
    key = label[sink] >> kGroupBits << 7 | static_cast<unsigned>(sink);
    atomicMin(&x.through[first], key);
  }
  __syncthreads();
  // Paths that part at the root meet no more, but may want the same token there.
  wins = wins && x.through[first] == key;
  const bool asks = wins;
  if (asks) atomicMin(&x.with[taken], key);
  __syncthreads();
  wins = wins && x.with[taken] == key;
  if (wins) {
    atomicAdd(&x.leaving[root], 1);
    atomicMin(&x.from[root], key);
  }
  __syncthreads();
  if (asks) x.with[taken] = kNoShortPath;
  wins = wins && (x.leaving[root] <= x.surplus[root] || x.from[root] == key);
  if (wins) {
    for (int at = sink; at != root;) {
      const int group = static_cast<int>(label[at] & kShortGroup);
      const int before = x.lists.own[group];
      x.lists.own[group] = kMoved;
      x.to[group] = static_cast<uint8_t>(at);
      at = before;
    }
  }
  const bool any = __syncthreads_or(wins) != 0;
  if (wins) {
    atomicAdd(&x.surplus[sink], 1);
    atomicAdd(&x.surplus[root], -1);
  }
  __syncthreads();
  return any;
}

// Tokens above the shares; each warp counts.
template <int kExperts>
__device__ inline int surplus_of(const Nearby<kExperts>& x) {
  int sum = 0;
#pragma unroll
  for (int e = threadIdx.x % 32; e < kExperts; e += 32) sum += max(0, x.surplus[e]);
  return lanes_sum(sum, 32);
}

// The first block moves tokens within the lists, and tells all blocks.
template <int kExperts>
__device__ void exchange_lists(Chip<kExperts>& c, int turn) {
  auto& x = *reinterpret_cast<Nearby<kExperts>*>(c.arena());
  sum_blocks<kExperts, int>(
      c, [&](int block, int e) { return static_cast<int>(note_of(c, block, turn).count[e]); },
      [&](int e, int sum) { x.surplus[e] = e < c.experts ? sum - c.even : 0; });
  for (int i = threadIdx.x; i < kGroups; i += kThreads) {
    x.to[i] = kMoved;
    x.with[i] = kNoShortPath;
    if (c.desk == nullptr) continue;
    x.lists.own[i] = c.desk->near.own[i];
    x.lists.token[i] = c.desk->near.token[i];
  }
  ShortPairs<kExperts> pairs(c, first_lists(c), turn);
  __syncthreads();
  int left = surplus_of(x);
  const bool many = left * kManyWrong > c.tokens;
#pragma unroll 1
  for (int round = 0; !many && left > 0 && round < kMostShortRounds; ++round) {
    if (!move_short(x, x.label[find_short(x, pairs)])) break;
    pairs.drop_moved(x.lists.own);
    left = surplus_of(x);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kGroups; i += kThreads)
    if (x.to[i] != kMoved) set_own(c, x.lists.token[i], x.to[i]);
  tell_loads(c, x.surplus, many ? kTooMany : left > 0 ? kLeftOver : kEven);
}

// Tokens at their best experts at c.price, but for some that move at a loss, in c.own; their loads
// in c.hard. kTooMany: none has moved, since too many would have to.
template <int kExperts>
__device__ int exchange_nearby(Chip<kExperts>& c, float reach) {
  list_nearby(c, reach);
  show_own(c);
  const int turn = c.turn;
  meet(c);
  if (threadIdx.x == 0) c.turn = 1 - turn;
  if (c.rank == 0) exchange_lists(c, turn);
  meet(c);
  return take_loads(c);
}

}  // namespace ballast::assignment::on_chip
