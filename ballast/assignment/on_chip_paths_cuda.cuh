// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_state_cuda.cuh"

// Exchanges tokens along shortest paths from experts with a surplus to experts with room, in one
// block and in integers: the prices rise until paths cost nothing, tokens move along paths that
// share no expert, and so on until all is even.
namespace ballast::assignment::on_chip {

// How an expert is reached best from one with a surplus: by distance, then by fewest moves, then by
// the token (group) that moves last. In one number, which orders so.
using Label = unsigned long long;
constexpr int kGroupBits = 11, kMoveBits = 9;
constexpr Label kOneMove = Label{1} << kGroupBits;
constexpr Label kOneFar = kOneMove << kMoveBits;
constexpr int kFar = 1 << 30;  // farther than any path
constexpr Label kNoPath = kFar * kOneFar;
constexpr int kNone = 0x7fffffff;
static_assert(kGroups <= 1 << kGroupBits && kOnChipExperts < 1 << kMoveBits);

__device__ inline int distance_of(Label label) { return static_cast<int>(label / kOneFar); }
__device__ inline int group_of(Label label) { return static_cast<int>(label & (kOneMove - 1)); }

// Tokens that may move (groups), each with the experts it may be at (pairs).
template <int kExperts>
struct Paths {
  Label label[2][kExperts + 1];  // in turn; behind the last: nowhere
  int surplus[kExperts];         // tokens above the share; below 0: room
  int price[kExperts];
  int begin[kExperts + 1];  // of the pairs that lead to each expert
  int filled[kExperts];
  int before[kExperts];  // expert before it on its path; itself: none is
  int owner[kExperts];   // path that goes through this expert
  int claim[kGroups];    // path that takes this token from its root; kNone between rounds
  int leaving[kExperts / 32][kExperts];  // of each root's paths those that end among 32 experts
  int cost[kPairs];                      // what the pair lacks to its token's best
  uint16_t group[kPairs];
  uint16_t token[kGroups];
  uint8_t expert[kPairs];  // where it leads
  uint8_t from[kPairs];    // where its token is, of pairs that no thread keeps
  uint8_t own[kGroups];    // where the token is: at no cost
};

// The pairs that lead to one expert belong to the threads of its column; each keeps some of them in
// registers, since reading them again in each sweep would take most of its time.
template <int kExperts>
struct Column {
  static constexpr int kStep = kThreads / kExperts;  // threads
  static constexpr int kKept = 8;
  static constexpr int kNowhere = kExperts;  // stands for experts that no path goes through
  int to, begin, end;
  bool many;             // some thread has more pairs than half of those that it can keep
  Label further[kKept];  // by how much a path's label grows with this pair
  int from[kKept];       // where its token is; kNowhere: at the pair's own expert, or no pair

  __device__ explicit Column(const Paths<kExperts>& paths)
      : to(threadIdx.x / kStep),
        begin(paths.begin[to] + static_cast<int>(threadIdx.x % kStep)),
        end(paths.begin[to + 1]) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int k = begin + i * kStep;
      further[i] = k < end ? paths.cost[k] * kOneFar + kOneMove + paths.group[k] : kOneMove;
    }
    many = __syncthreads_or(begin + kKept / 2 * kStep < end) != 0;
  }

  __device__ int place(const Paths<kExperts>& paths, int group) const {
    const int own = paths.own[group];
    return own == to ? kNowhere : own;
  }
  // Looks where tokens are.
  __device__ void find_tokens(Paths<kExperts>& paths) {
#pragma unroll
    for (int i = 0; i < kKept; ++i)
      from[i] = begin + i * kStep < end ? place(paths, group_of(further[i])) : kNowhere;
    for (int k = begin + kKept * kStep; k < end; k += kStep)
      paths.from[k] = static_cast<uint8_t>(place(paths, paths.group[k]));
  }
  // The least label of a path that ends with one of the pairs.
  template <int kFirst>
  __device__ Label least_of_half(const Label* label, Label least) const {
#pragma unroll
    for (int i = kFirst; i < kFirst + kKept / 2; ++i) {
      const Label reached = (label[from[i]] & ~(kOneMove - 1)) + further[i];
      least = reached < least ? reached : least;
    }
    return least;
  }
  __device__ Label least(const Paths<kExperts>& paths, const Label* label, Label limit) const {
    Label best = least_of_half<0>(label, limit);
    if (many) {
      best = least_of_half<kKept / 2>(label, best);
      for (int k = begin + kKept * kStep; k < end; k += kStep) {
        const Label reached = (label[paths.from[k]] & ~(kOneMove - 1)) + paths.cost[k] * kOneFar +
                              kOneMove + paths.group[k];
        best = reached < best ? reached : best;
      }
    }
    return best;
  }
  // The pairs' costs after prices rose by raised(expert).
  template <typename Raised>
  __device__ void raise(Paths<kExperts>& paths, Raised raised) {
    const int here = raised(to);
#pragma unroll
    for (int i = 0; i < kKept; ++i)
      if (from[i] != kNowhere)
        further[i] += (here - raised(from[i])) * static_cast<int64_t>(kOneFar);
    for (int k = begin + kKept * kStep; k < end; k += kStep)
      if (paths.from[k] != kNowhere) paths.cost[k] += here - raised(paths.from[k]);
  }
};

// Where each expert's pairs begin, from how many there are.
template <int kExperts>
__device__ inline void add_up(Paths<kExperts>& paths) {
  constexpr int kEach = kExperts / 32;
  const int first = threadIdx.x * kEach;
  int here[kEach], sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    here[i] = sum;
    sum += paths.filled[first + i];
  }
  int running = sum;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAll, running, step);
    if (static_cast<int>(threadIdx.x) >= step) running += other;
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) paths.begin[first + i] = running - sum + here[i];
  if (threadIdx.x == 31) paths.begin[kExperts] = running;
}

// Puts pairs that lead to the same expert side by side, in any order.
template <int kExperts>
__device__ void sort_pairs(Paths<kExperts>& paths, int count) {
  constexpr int kKept = kPairs / kThreads;
  int cost[kKept], place[kKept];
  uint16_t group[kKept];
  uint8_t to[kKept];
  if (threadIdx.x < kExperts) paths.filled[threadIdx.x] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int k = threadIdx.x + i * kThreads;
    if (k >= count) break;
    cost[i] = paths.cost[k];
    group[i] = paths.group[k];
    to[i] = paths.expert[k];
    place[i] = atomicAdd(&paths.filled[to[i]], 1);
  }
  __syncthreads();
  if (threadIdx.x < 32) add_up(paths);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (static_cast<int>(threadIdx.x) + i * kThreads >= count) break;
    const int k = paths.begin[to[i]] + place[i];
    paths.cost[k] = cost[i];
    paths.group[k] = group[i];
  }
  __syncthreads();
}

// Labels of all experts within `budget` (Bellman and Ford), in paths.label[turn]. Returns the
// sweeps.
template <int kExperts>
__device__ int find_distances(Paths<kExperts>& paths, Column<kExperts>& column, int budget,
                              int& turn) {
  column.find_tokens(paths);
  turn = 0;
  if (threadIdx.x <= kExperts) {
    const bool roots = threadIdx.x < kExperts && paths.surplus[threadIdx.x] > 0;
    paths.label[0][threadIdx.x] = roots ? 0 : kNoPath;
    if (threadIdx.x == kExperts) paths.label[1][kExperts] = kNoPath;
  }
  __syncthreads();
  const Label limit = (static_cast<Label>(budget) + 1) * kOneFar;
  int sweeps = 0;
  for (bool changed = true; changed && sweeps <= kExperts; ++sweeps) {
    const Label best = exact_cuda::lanes_min(column.least(paths, paths.label[turn], limit),
                                             Column<kExperts>::kStep);
    const Label old = paths.label[turn][column.to];
    const bool better = best < limit && best < old;
    if (threadIdx.x % Column<kExperts>::kStep == 0)
      paths.label[1 - turn][column.to] = better ? best : old;
    changed = __syncthreads_or(better) != 0;
    turn = 1 - turn;
  }
  return sweeps;
}

// How far prices rise at most, so that all reached experts with room are reached at no cost. -1:
// there is none. Every warp finds the same.
template <int kExperts>
__device__ int find_rise(const Paths<kExperts>& paths, int turn) {
  int farthest = -1;
#pragma unroll
  for (int e = threadIdx.x % 32; e < kExperts; e += 32) {
    const Label label = paths.label[turn][e];
    if (paths.surplus[e] < 0 && label < kNoPath) farthest = max(farthest, distance_of(label));
  }
  return lanes_max(farthest, 32);
}

// Prices of experts nearer than `rise` go up by the difference.
template <int kExperts>
__device__ void raise_prices(Paths<kExperts>& paths, Column<kExperts>& column, int turn, int rise) {
  const auto raised = [&](int e) { return max(0, rise - distance_of(paths.label[turn][e])); };
  column.raise(paths, raised);
  if (threadIdx.x < kExperts) paths.price[threadIdx.x] += raised(threadIdx.x);
}

// How many paths with a lower number leave the same root; for the threads of all experts, those
// whose path `leaves` one. All threads call it. REQUIRES: paths.leaving is zero.
template <int kExperts>
__device__ inline int count_before(Paths<kExperts>& paths, bool leaves, int root) {
  const int warp = threadIdx.x / 32;
  int before = 0;
  if (threadIdx.x < kExperts) {
    const unsigned same = __match_any_sync(kAll, leaves ? root : kNone);
    before = __popc(same & ((1u << threadIdx.x % 32) - 1u));
    if (leaves && before == 0) paths.leaving[warp][root] = __popc(same);
  }
  __syncthreads();
  if (leaves) {
    for (int other = 0; other < warp; ++other) before += paths.leaving[other][root];
  }
  return before;
}

// Moves a token into each expert with room by its path. Of paths that share more than their root,
// the one to the lowest number goes; of those that remain at a root, as many as its surplus.
template <int kExperts>
__device__ void move_tokens(Paths<kExperts>& paths, int turn, int rise) {
  const int sink = threadIdx.x;
  const Label* label = paths.label[turn];
  if (sink < kExperts) {
    const bool reached = label[sink] >= kOneMove && label[sink] < kNoPath;
    paths.before[sink] = reached ? paths.own[group_of(label[sink])] : sink;
    paths.owner[sink] = kNone;
#pragma unroll
    for (auto& of_root : paths.leaving) of_root[sink] = 0;
  }
  __syncthreads();
  const bool goes = sink < kExperts && paths.surplus[sink] < 0 && distance_of(label[sink]) <= rise;
  int root = sink, first = sink;  // `first`: the expert behind the root
  if (goes) {
    for (; paths.before[root] != root; root = paths.before[root]) first = root;
    atomicMin(&paths.owner[first], sink);
  }
  __syncthreads();
  // Paths that part at the root meet no more, but may want the same token there.
  const bool claims = goes && paths.owner[first] == sink;
  int* const claim = &paths.claim[claims ? group_of(label[first]) : 0];
  if (claims) atomicMin(claim, sink);
  __syncthreads();
  bool wins = claims && *claim == sink;
  const int better = count_before(paths, wins, root);
  if (claims) *claim = kNone;
  wins = wins && better < paths.surplus[root];
  if (wins) {
    for (int at = sink; at != root; at = paths.before[at])
      paths.own[group_of(label[at])] = static_cast<uint8_t>(at);
    paths.surplus[sink] += 1;
  }
  __syncthreads();
  if (wins) atomicAdd(&paths.surplus[root], -1);
  __syncthreads();
}

// Whether all experts are even; each warp looks by itself.
template <int kExperts>
__device__ inline bool is_even(const Paths<kExperts>& paths) {
  bool some = false;
#pragma unroll
  for (int e = threadIdx.x % 32; e < kExperts; e += 32) some = some || paths.surplus[e] > 0;
  return __any_sync(kAll, some) == 0;
}

// Solves what the lists of `count` pairs allow: prices may rise by `budget` in all, and pairs may
// be swept over sweeps_left times. True: all is even.
template <int kExperts>
__device__ bool exchange_tokens(Paths<kExperts>& paths, int count, int budget, int& sweeps_left) {
  for (int i = threadIdx.x; i < kGroups; i += kThreads) paths.claim[i] = kNone;
  sort_pairs(paths, count);  // all threads wait for each other there
  Column<kExperts> column(paths);
  while (!is_even(paths)) {
    if (sweeps_left < 0) return false;
    int turn = 0;
    sweeps_left -= find_distances(paths, column, budget, turn) + 4;
    const int rise = find_rise(paths, turn);
    raise_prices(paths, column, turn, rise >= 0 ? rise : budget);
    __syncthreads();
    if (rise < 0) return false;
    budget -= rise;
    move_tokens(paths, turn, rise);
  }
  return true;
}

}  // namespace ballast::assignment::on_chip
