// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_near_lists_cuda.cuh"

// A balanced assignment at the price of a small gap, from prices near balance: tokens that lose
// little elsewhere move along paths of a few moves, from experts with too many tokens to experts
// with room. Prices stay as they are, so the gap is what the moves lose. A token moves once.
namespace ballast::assignment::on_chip {

// The pairs that a thread of the first block looks after.
template <int kExperts>
struct ShortPairs {
  static constexpr int kKept = kPairs / kThreads, kSlots = Nearby<kExperts>::kSlots;
  ShortLabel move[kKept];  // what it loses, and its group; kNoShortPath: there is none
  int ends[kKept];         // the expert it leaves, and the other one << 8
  int used;                // of these, by some thread

  template <Meeting kMeeting>
  __device__ ShortPairs(Chip<kExperts, kMeeting>& c, const NearLists& lists, int turn) {
    int most = 0;
#pragma unroll 1
    for (int block = threadIdx.x % 32; block < c.blocks; block += 32)
      most = max(most, note_of(c, block, turn).list[1]);
    used = (lanes_max(most, 32) * c.blocks + kThreads - 1) / kThreads;
    // All of a thread are of one block.
    const int first = static_cast<int>(threadIdx.x) / c.blocks, step = kThreads / c.blocks;
    const int listed = note_of(c, static_cast<int>(threadIdx.x) % c.blocks, turn).list[1];
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      move[i] = kNoShortPath;
      ends[i] = 0;
      if (i >= used || first + i * step >= listed) continue;
      const NearPair pair = lists.pair[static_cast<int>(threadIdx.x) + i * kThreads];
      if (pair.loss == kNoShortPath) continue;
      move[i] = pair.loss << kGroupBits | pair.group;
      ends[i] = lists.own[pair.group] | pair.to << 8;
    }
  }

  // One more move, the moves-th: labels of where it leads. Some pairs at a time, all of which are
  // read before one is written.
  __device__ void extend(ShortLabels<kExperts>& label, int moves) const {
    constexpr int kTogether = 4;
    ShortLabel* const after = label.after[moves];
#pragma unroll
    for (int first = 0; first < kKept; first += kTogether) {
      if (first >= used) break;
      ShortLabel found[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const ShortLabel here = label.within(moves - 1, ends[first + i] & 0xff);
        const bool leads = here != kNoShortPath && move[first + i] != kNoShortPath;
        found[i] = leads ? (here & ~kShortGroup) + move[first + i] : kNoShortPath;
        // What others have written already spares some their turn.
        if (found[i] >= after[ends[first + i] >> 8]) found[i] = kNoShortPath;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        if (found[i] != kNoShortPath) atomicMin(&after[ends[first + i] >> 8], found[i]);
    }
  }

  // From an expert with too many tokens to one with room.
  __device__ bool is_direct(const Nearby<kExperts>& x, int i) const {
    return move[i] != kNoShortPath && x.surplus[ends[i] & 0xff] > 0 && x.surplus[ends[i] >> 8] < 0;
  }

  // Of direct moves the best that lead to an expert: one for each of its slots.
  __device__ void offer(Nearby<kExperts>& x) const {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= used) break;
      if (is_direct(x, i)) atomicMin(&x.into[ends[i] >> 8][move[i] % kSlots], move[i]);
    }
  }

  // Offers that an expert has room for. Each asks the expert that it leaves, and its token, which
  // may have more than one. Returns them, a bit each.
  __device__ unsigned ask(Nearby<kExperts>& x) const {
    unsigned asked = 0;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= used) break;
      if (!is_direct(x, i)) continue;
      const int from = ends[i] & 0xff, to = ends[i] >> 8;
      if (x.into[to][move[i] % kSlots] != move[i]) continue;
      if (better_of(x.into[to], move[i]) >= -x.surplus[to]) continue;
      asked |= 1u << i;
      atomicMin(&x.out_of[from][to % kSlots], move[i]);
      atomicMin(&x.with[move[i] & kShortGroup], wish_of(i));
    }
    return asked;
  }

  // Of what was asked, what its expert gives away and its token likes best.
  __device__ unsigned choose(const Nearby<kExperts>& x, unsigned asked) const {
    unsigned chosen = 0;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if ((asked >> i & 1u) == 0) continue;
      const int from = ends[i] & 0xff, to = ends[i] >> 8;
      if (x.out_of[from][to % kSlots] == move[i] && x.with[move[i] & kShortGroup] == wish_of(i) &&
          better_of(x.out_of[from], move[i]) < x.surplus[from])
        chosen |= 1u << i;
    }
    return chosen;
  }

  __device__ void go(Nearby<kExperts>& x, unsigned asked, unsigned chosen) const {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if ((asked >> i & 1u) == 0) continue;
      const unsigned group = move[i] & kShortGroup;
      const int from = ends[i] & 0xff, to = ends[i] >> 8;
      if ((chosen >> i & 1u) == 0) {
        x.with[group] = kNoShortPath;  // where the token has moved, nobody reads it again
        continue;
      }
      x.lists.own[group] = kMoved;
      x.to[group] = static_cast<uint8_t>(to);
      atomicAdd(&x.surplus[to], 1);
      atomicAdd(&x.surplus[from], -1);
    }
  }

  // A token prefers the least loss, then the first expert.
  __device__ unsigned wish_of(int i) const {
    return move[i] >> kGroupBits << 7 | static_cast<unsigned>(ends[i] >> 8);
  }
  // How many of the slots are better.
  __device__ static int better_of(const unsigned (&slots)[kSlots], unsigned mine) {
    int better = 0;
#pragma unroll
    for (int i = 0; i < kSlots; i += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(&slots[i]);
      better += (four.x < mine) + (four.y < mine) + (four.z < mine) + (four.w < mine);
    }
    return better;
  }

  __device__ void drop_moved(const uint8_t* own) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (i >= used) break;
      if (move[i] != kNoShortPath && own[move[i] & kShortGroup] == kMoved) move[i] = kNoShortPath;
    }
  }
};

// Threads of the first warps, one an expert, wait for each other.
template <int kExperts>
__device__ inline void sync_experts() {
  if constexpr (kExperts == 32) {
    __syncwarp();
  } else {
    sync_first<kExperts>();
  }
}

// Before a round, for thread `e` of these: nobody has moved, and nothing is wished.
template <int kExperts>
__device__ inline void begin_round(Nearby<kExperts>& x, int e) {
  const ShortLabel label = x.surplus[e] > 0 ? 0 : kNoShortPath;
#pragma unroll
  for (int moves = 0; moves <= kShortMoves; ++moves) x.label.after[moves][e] = label;
  x.through[e] = x.wish[e] = kNoShortPath;
  x.leaving[e] = 0;
}

// How many better paths leave the same root.
template <int kExperts>
__device__ inline int better_ones(const Nearby<kExperts>& x, unsigned wish) {
  const unsigned root = wish & kWishRoot;
  int better = 0;
#pragma unroll 8
  for (int e = 0; e < kExperts; e += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(&x.wish[e]);
    better += (four.x - root < wish - root) + (four.y - root < wish - root) +
              (four.z - root < wish - root) + (four.w - root < wish - root);
  }
  return better;
}

// The tokens of a path move.
template <int kExperts>
__device__ inline void follow(Nearby<kExperts>& x, int end, int root) {
#pragma unroll 1
  for (int at = end; at != root; at = x.before[at]) {
    x.lists.own[x.by[at]] = kMoved;
    x.to[x.by[at]] = static_cast<uint8_t>(at);
  }
}

// Moves a token into each expert with room by its path. Of paths that share more than their root
// the best goes, and of those that want the same token; of those that remain at a root the best, as
// many as it has too many. For thread `e` of the experts'; true: its expert got one. Begins the
// next round.
template <int kExperts>
__device__ bool move_short(Nearby<kExperts>& x, int e, int moves) {
  const ShortLabel label = x.label.within(moves, e);
  const bool reached = label != kNoShortPath && x.surplus[e] <= 0;
  x.by[e] = static_cast<uint16_t>(label & kShortGroup);
  x.before[e] = static_cast<uint8_t>(reached ? x.lists.own[label & kShortGroup] : e);
  sync_experts<kExperts>();
  bool wins = reached && x.surplus[e] < 0;
  int root = e, first = e, taken = 0;  // `first`: the expert behind the root
  unsigned wish = kNoShortPath;
  if (wins) {
    for (int next = x.before[e]; next != root; next = x.before[root]) {
      first = root;
      root = next;
    }
    taken = x.by[first];
    wish = static_cast<unsigned>(root) << kWishShift | label >> kGroupBits >> kWishCoarse << 7 |
           static_cast<unsigned>(e);
    atomicMin(&x.through[first], wish);
  }
  sync_experts<kExperts>();
  // Paths that part at the root meet no more, but may want the same token there.
  wins = wins && x.through[first] == wish;
  const bool asks = wins;
  if (asks) atomicMin(&x.with[taken], wish);
  sync_experts<kExperts>();
  wins = wins && x.with[taken] == wish;
  if (wins) {
    atomicAdd(&x.leaving[root], 1);
    x.wish[e] = wish;
  }
  sync_experts<kExperts>();
  if (asks) x.with[taken] = kNoShortPath;
  if (wins && x.leaving[root] > x.surplus[root]) wins = better_ones(x, wish) < x.surplus[root];
  if (wins) follow(x, e, root);
  sync_experts<kExperts>();
  if (wins) {
    atomicAdd(&x.surplus[e], 1);
    atomicAdd(&x.surplus[root], -1);
  }
  sync_experts<kExperts>();
  begin_round(x, e);
  return wins;
}

// Tokens above the shares; each warp counts.
template <int kExperts>
__device__ inline int surplus_of(const Nearby<kExperts>& x) {
  int sum = 0;
#pragma unroll
  for (int e = threadIdx.x % 32; e < kExperts; e += 32) sum += max(0, x.surplus[e]);
  return lanes_sum(sum, 32);
}

// Tokens move straight from experts with too many to experts with room, the best of these moves
// first. Returns how many are left, of `left`.
template <int kExperts>
__device__ int move_directly(Nearby<kExperts>& x, ShortPairs<kExperts>& pairs, int left) {
#pragma unroll 1
  for (int round = 0; left > 0 && round < kDirectRounds; ++round) {
    constexpr int kSlots = Nearby<kExperts>::kSlots;
    for (int i = threadIdx.x; i < kExperts * kSlots; i += kThreads)
      x.into[i / kSlots][i % kSlots] = x.out_of[i / kSlots][i % kSlots] = kNoShortPath;
    __syncthreads();
    pairs.offer(x);
    __syncthreads();
    const unsigned asked = pairs.ask(x);
    __syncthreads();
    const unsigned chosen = pairs.choose(x, asked);
    __syncthreads();
    pairs.go(x, asked, chosen);
    __syncthreads();
    pairs.drop_moved(x.lists.own);
    const int before = left;
    left = surplus_of(x);
    if (4 * (before - left) < before) break;
  }
  return left;
}

// Tokens move in rounds. Returns how many are left above their expert's share, of `left`.
template <int kExperts>
__device__ int move_in_rounds(Nearby<kExperts>& x, ShortPairs<kExperts>& pairs, int left) {
  const int e = threadIdx.x;
  int most = kFewMoves;
  if (e < kExperts) begin_round(x, e);
  __syncthreads();
#pragma unroll 1
  for (int round = 0; left > 0 && round < kMostShortRounds; ++round) {
#pragma unroll 1
    for (int moves = 1; moves <= most; ++moves) {
      pairs.extend(x.label, moves);
      __syncthreads();
    }
    const int moved = __syncthreads_count(e < kExperts && move_short(x, e, most));
    if (moved == 0) {
      if (most == kShortMoves) break;
      most = kShortMoves;
    }
    left -= moved;
    pairs.drop_moved(x.lists.own);
  }
  return left;
}

// Tokens at wrong experts, by chance(c). With more than these, another of Newton's steps takes less
// time than direct moves, and than rounds, which move one or two tokens each at last.
constexpr float kFewWrong = 0.2f, kFewForRounds = 0.08f;

// Returns how many are left above their expert's share.
template <int kExperts, Meeting kMeeting>
__device__ int move_some(const Chip<kExperts, kMeeting>& c, Nearby<kExperts>& x,
                         ShortPairs<kExperts>& pairs) {
  int left = surplus_of(x);
  if (static_cast<float>(left) > kFewWrong * chance(c)) return left;
  left = move_directly(x, pairs, left);
  return static_cast<float>(left) > kFewForRounds * chance(c) ? left
                                                              : move_in_rounds(x, pairs, left);
}

// The first block moves tokens within the lists, and tells all blocks whether loads are even.
template <int kExperts, Meeting kMeeting>
__device__ void exchange_lists(Chip<kExperts, kMeeting>& c, int turn) {
  auto& x = *reinterpret_cast<Nearby<kExperts>*>(c.arena());
  sum_blocks<int>(
      c, [&](int block, int e) { return static_cast<int>(note_of(c, block, turn).count[e]); },
      [&](int e, int sum) { x.surplus[e] = e < c.experts ? sum - c.even : 0; });
#pragma unroll 1
  for (int i = threadIdx.x; i < kGroups; i += kThreads) {
    x.to[i] = kMoved;
    x.with[i] = kNoShortPath;
    if (!c.at_desk() || i / c.blocks >= note_of(c, i % c.blocks, turn).list[0]) continue;
    x.lists.own[i] = c.desk->near.own[i];
    x.lists.token[i] = c.desk->near.token[i];
  }
  ShortPairs<kExperts> pairs(c, first_lists(c), turn);
  __syncthreads();
  const int left = move_some(c, x, pairs);
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < kGroups; i += kThreads)
    if (x.to[i] != kMoved) set_own(c, x.lists.token[i], x.to[i]);
  tell_loads(c, x.surplus, left == 0 ? 1 : 0);
}

// Tokens at their best experts at c.price, but for some that move at a loss, in c.own; their loads
// in c.hard. False: these are not even.
template <int kExperts, Meeting kMeeting>
__device__ bool exchange_nearby(Chip<kExperts, kMeeting>& c, float reach) {
  list_nearby(c, reach);
  show_own(c);
  const int turn = c.turn;
  meet(c);
  if (threadIdx.x == 0) c.turn = 1 - turn;
  if (c.rank == 0) exchange_lists(c, turn);
  meet(c);
  return take_loads(c) != 0;
}

}  // namespace ballast::assignment::on_chip
