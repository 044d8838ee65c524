// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_crossings_cuda.cuh"
#include "ballast/assignment/on_chip_paths_cuda.cuh"
#include "ballast/assignment/on_chip_prices_cuda.cuh"

// From prices near balance to the optimum, in integers (quanta): tokens that could change their
// expert at little cost are listed in the first block, which exchanges them along shortest paths.
namespace ballast::assignment::on_chip {

constexpr int kMostHalvings = 16;  // of the reach, in a round
constexpr int kScoreBits = 28;     // scores are below 2^28 quanta, prices from 0 to below 2^30

// In quanta.
template <int kExperts, Meeting kMeeting>
__device__ inline int worth_at(const Chip<kExperts, kMeeting>& c, int row, int expert) {
  return __float2int_rn(score_at(c, row, expert) * c.exact_scale) - c.quanta[expert];
}

using Mask = uint16_t;  // bits of a thread's scores
static_assert(kValues == 8 * sizeof(Mask));

// Which of its scores each thread has found near their row's best: [rows, kLanes], at the arena's
// end, behind what the first block's holds.
template <int kExperts, Meeting kMeeting>
__device__ inline Mask* near_masks(Chip<kExperts, kMeeting>& c) {
  constexpr int kBytes = kOnChipRows * kExperts / 8;
  constexpr size_t kCrossings = kExperts == Crossings::kExperts ? sizeof(Crossings) : 0;
  static_assert(sizeof(Paths<kExperts>) + kCrossings + kBytes <= kArenaBytes);
  return reinterpret_cast<Mask*>(c.arena() + kArenaBytes - kBytes);
}

// c.price becomes quanta, the lowest 0. False: prices too far apart.
template <int kExperts, Meeting kMeeting>
__device__ bool round_prices(Chip<kExperts, kMeeting>& c) {
  const int exponent = c.largest > 0 ? ilogbf(c.largest) + 1 : 0;
  const float scale = ldexpf(1, kScoreBits - exponent);
  float low = INFINITY, high = -INFINITY;
#pragma unroll 1
  for (int e = threadIdx.x % 32; e < c.experts; e += 32) {
    low = fminf(low, c.price[e]);
    high = fmaxf(high, c.price[e]);
  }
  low = -lanes_max(-low, 32);
  high = lanes_max(high, 32);
  if (!((high - low) * scale < 1 << 29) || exponent < -90 || exponent > 100) return false;
  __syncthreads();
  if (threadIdx.x < kExperts) {
    c.quanta[threadIdx.x] =
        static_cast<int>(threadIdx.x) < c.experts
            ? __double2int_rn((static_cast<double>(c.price[threadIdx.x]) - low) * scale)
            : 0;
    c.price[threadIdx.x] = static_cast<float>(c.quanta[threadIdx.x]) / scale;
  }
  if (threadIdx.x == 0) c.exact_scale = scale;
  __syncthreads();
  return true;
}

// The experts within `reach` of a row's best, as bits of this thread's scores, and that best. A
// look in floats finds those that may be near; c.price holds the prices for it. `slop`: what floats
// may be wrong by.
template <int kExperts, Meeting kMeeting>
__device__ inline unsigned near_experts(const Chip<kExperts, kMeeting>& c, int row, int reach,
                                        float slop, int& best) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  const int lane = threadIdx.x % kLanes;
  float value[kValues];
  read_row(c, row, value);
  float high = -INFINITY;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    value[i] -= c.price[expert_at<kExperts>(lane, i)];
    high = fmaxf(high, value[i]);
  }
  const float least = lanes_max(high, kLanes) - slop;
  unsigned maybe = 0, in = 0;
#pragma unroll
  for (int i = 0; i < kValues; ++i) maybe |= value[i] >= least ? 1u << i : 0u;
  if (row >= c.count) maybe = 0;
  best = -0x7fffffff - 1;
  for (unsigned left = maybe; left != 0; left &= left - 1)
    best = max(best, worth_at(c, row, expert_at<kExperts>(lane, __ffs(left) - 1)));
  best = lanes_max(best, kLanes);
  for (unsigned left = maybe; left != 0; left &= left - 1) {
    const int i = __ffs(left) - 1;
    if (best - worth_at(c, row, expert_at<kExperts>(lane, i)) <= reach) in |= 1u << i;
  }
  return in;
}

// Lists of this block among those of all.
struct Lists {
  int groups, pairs;                // of all blocks
  int groups_before, pairs_before;  // of the blocks before this one
};

// A row's pairs, for its first lane: with its one group. 0: it has only its best expert.
template <int kExperts>
__device__ inline int list_length(unsigned in, int& before) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  const int mine = __popc(in);
  int running = mine;
  for (int step = 1; step < kLanes; step *= 2) {
    const int other = __shfl_up_sync(kAll, running, step, kLanes);
    if (static_cast<int>(threadIdx.x % kLanes) >= step) running += other;
  }
  before = running - mine;
  const int all = __shfl_sync(kAll, running, kLanes - 1, kLanes);
  return all >= 2 ? all : 0;
}

// Puts a row to its best expert, one of those tied, and counts it there. A warp's work.
template <int kExperts, Meeting kMeeting>
__device__ inline void choose_own(Chip<kExperts, kMeeting>& c, int row, unsigned in, int best) {
  const int lane = threadIdx.x % Layout<kExperts>::kLanes;
  unsigned at = 0;
  for (unsigned left = in; left != 0; left &= left - 1) {
    const int i = __ffs(left) - 1;
    if (worth_at(c, row, expert_at<kExperts>(lane, i)) == best) at |= 1u << i;
  }
  const unsigned tied = __ballot_sync(kAll, at != 0) & row_lanes<kExperts>();
  if (row < c.count && static_cast<int>(threadIdx.x % 32) == choose_bit(tied, c.first + row)) {
    const int own = expert_at<kExperts>(lane, choose_bit(at, c.first + row));
    c.own[row] = static_cast<uint8_t>(own);
    atomicAdd(&c.counts[own], 1);
  }
}

// What the notes say; each warp reads them.
template <int kExperts, Meeting kMeeting>
__device__ inline Lists lists_of_notes(Chip<kExperts, kMeeting>& c, int turn) {
  Lists lists{};
#pragma unroll 1
  for (int block = threadIdx.x % 32; block < c.blocks; block += 32) {
    const Note<kExperts>& note = note_of(c, block, turn);
    lists.groups += note.list[0];
    lists.pairs += note.list[1];
    lists.groups_before += block < c.rank ? note.list[0] : 0;
    lists.pairs_before += block < c.rank ? note.list[1] : 0;
  }
  return {lanes_sum(lists.groups, 32), lanes_sum(lists.pairs, 32),
          lanes_sum(lists.groups_before, 32), lanes_sum(lists.pairs_before, 32)};
}

// Counts pairs within `reach`. `choose`: also takes each token's best expert at c.quanta, in c.own,
// and the loads, in c.hard.
template <int kExperts, Meeting kMeeting>
__device__ Lists count_lists(Chip<kExperts, kMeeting>& c, int reach, bool choose) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  int packed = 0;
  const float slop = static_cast<float>(reach) / c.exact_scale + c.largest * 1e-6f;
  if (choose) {
    for (int e = threadIdx.x; e < kExperts; e += kThreads) c.counts[e] = 0;
    __syncthreads();
  }
#pragma unroll 1
  for (int base = 0; base < c.count; base += Layout<kExperts>::kTogether) {
    const int row = base + threadIdx.x / kLanes;
    int best = 0, before = 0;
    const unsigned in = near_experts(c, row, reach, slop, best);
    if (row < c.count) near_masks(c)[row * kLanes + threadIdx.x % kLanes] = static_cast<Mask>(in);
    const int length = list_length<kExperts>(in, before);
    if (threadIdx.x % kLanes == 0 && length > 0) packed += length | 1 << kPairBits;
    if (choose) choose_own(c, row, in, best);
  }
  packed = exact_cuda::block_sum(packed, c.int_scratch);
  const int turn = c.turn;
#pragma unroll 1
  for (int i = threadIdx.x; i < copies(c) * kExperts; i += kThreads) {
    Note<kExperts>& note = note_for(c, i / kExperts, turn);
    const int e = i % kExperts;
    if (choose) note.count[e] = static_cast<uint16_t>(c.counts[e]);
    if (e == 0) note.list[0] = packed >> kPairBits;
    if (e == 0) note.list[1] = packed & ((1 << kPairBits) - 1);
  }
  meet(c);
  if (choose) {
    sum_blocks<int>(
        c, [&](int block, int e) { return static_cast<int>(note_of(c, block, turn).count[e]); },
        [&](int e, int sum) { c.hard[e] = sum; });
  }
  const Lists lists = lists_of_notes(c, turn);
  __syncthreads();
  if (threadIdx.x == 0) c.turn = 1 - turn;
  __syncthreads();
  return lists;
}

// Writes this block's lists to where the first block finds them.
template <int kExperts, Meeting kMeeting>
__device__ void write_lists(Chip<kExperts, kMeeting>& c, const Lists& lists) {
  constexpr int kLanes = Layout<kExperts>::kLanes;
  auto& paths = c.at_desk() ? c.desk->paths
                            : *reinterpret_cast<Paths<kExperts>*>(
                                  cooperative_groups::this_cluster().map_shared_rank(c.arena(), 0));
  int packed = lists.pairs_before | lists.groups_before << kPairBits;
#pragma unroll 1
  for (int base = 0; base < c.count; base += Layout<kExperts>::kTogether) {
    const int row = base + threadIdx.x / kLanes;
    int before = 0, total = 0;
    const unsigned in = row < c.count ? near_masks(c)[row * kLanes + threadIdx.x % kLanes] : 0;
    const int length = list_length<kExperts>(in, before);
    int place = exact_cuda::block_prefix(
        threadIdx.x % kLanes == 0 && length > 0 ? length | 1 << kPairBits : 0, c.int_scratch,
        total);
    place = packed + __shfl_sync(kAll, place, 0, kLanes);
    packed += total;
    if (length == 0) continue;
    const int own = c.own[row];
    const int best = worth_at(c, row, own);  // tokens are at no cost where they are
    const int group = place >> kPairBits, first = place & ((1 << kPairBits) - 1);
    if (threadIdx.x % kLanes == 0) {
      paths.own[group] = static_cast<uint8_t>(own);
      paths.token[group] = static_cast<uint16_t>(c.first + row);
    }
    int k = first + before;
    for (unsigned left = in; left != 0; left &= left - 1) {
      const int e = expert_at<kExperts>(threadIdx.x % kLanes, __ffs(left) - 1);
      paths.cost[k] = best - worth_at(c, row, e);
      paths.group[k] = static_cast<uint16_t>(group);
      paths.expert[k] = static_cast<uint8_t>(e);
      ++k;
    }
  }
}

// Lists from the desk, for the first block.
template <int kExperts>
__device__ void take_lists(const Paths<kExperts>& desk, Paths<kExperts>& paths,
                           const Lists& lists) {
#pragma unroll 1
  for (int i = threadIdx.x; i < lists.pairs; i += kThreads) {
    paths.cost[i] = desk.cost[i];
    paths.group[i] = desk.group[i];
    paths.expert[i] = desk.expert[i];
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < lists.groups; i += kThreads) {
    paths.token[i] = desk.token[i];
    paths.own[i] = desk.own[i];
  }
}

// The first block exchanges tokens within the lists and tells all blocks; the verdict: 1 all is
// even, 2 no more sweeps are allowed.
template <int kExperts, Meeting kMeeting>
__device__ void exchange(Chip<kExperts, kMeeting>& c, int reach, const Lists& lists,
                         int& sweeps_left) {
  const auto cluster = cooperative_groups::this_cluster();
  auto& paths = *reinterpret_cast<Paths<kExperts>*>(c.arena());
  if (c.at_desk()) take_lists(c.desk->paths, paths, lists);
  if (threadIdx.x < kExperts) {
    const int e = threadIdx.x;
    paths.surplus[e] = e < c.experts ? c.hard[e] - c.even : 0;
    paths.price[e] = e < c.experts ? c.quanta[e] : 0;
  }
  __syncthreads();
  bool even;
  if constexpr (kExperts == Crossings::kExperts) {
    auto& crossings = *reinterpret_cast<Crossings*>(&paths + 1);
    even = exchange_few(paths, crossings, lists.pairs, reach, sweeps_left);
  } else {
    even = exchange_tokens(paths, lists.pairs, reach, sweeps_left);
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < lists.groups; i += kThreads) {
    set_own(c, paths.token[i], paths.own[i]);
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < copies(c) * kExperts; i += kThreads) {
    int* quanta = c.at_desk() ? c.desk->quanta : cluster.map_shared_rank(&c, i / kExperts)->quanta;
    quanta[i % kExperts] = paths.price[i % kExperts];
  }
  tell_loads(c, paths.surplus, even ? 1 : sweeps_left < 0 ? 2 : 0);
}

// What `exchange` told, for each block: its verdict.
template <int kExperts, Meeting kMeeting>
__device__ int take_exchange(Chip<kExperts, kMeeting>& c) {
  if (c.at_desk() && threadIdx.x < kExperts) c.quanta[threadIdx.x] = c.desk->quanta[threadIdx.x];
  const int verdict = take_loads(c);
  if (threadIdx.x < kExperts)
    c.price[threadIdx.x] = static_cast<float>(c.quanta[threadIdx.x]) / c.exact_scale;
  __syncthreads();
  return verdict;
}

// True: c.own is optimal at c.quanta; false: it is the best at c.quanta, but not even. `near`:
// about how many quanta apart tokens are that matter.
template <int kExperts, Meeting kMeeting>
__device__ bool repair(Chip<kExperts, kMeeting>& c, float near, Effort effort) {
  int sweeps_left = effort.sweeps;  // the first block's
  bool choose = true;
  int reach = static_cast<int>(fminf(fmaxf(near, 64.0f), static_cast<float>(1 << 27)));
  int halvings = 0;
#pragma unroll 1
  for (int round = 0; round < effort.rounds;) {
    const Lists lists = count_lists(c, reach, choose);
    choose = false;
    if (lists.pairs > kPairs || lists.groups > kGroups) {
      if (++halvings > kMostHalvings) return false;
      reach /= 2;
      continue;
    }
    halvings = 0;
    ++round;
    write_lists(c, lists);
    show_own(c);
    meet(c);
    if (c.rank == 0) exchange(c, reach, lists, sweeps_left);
    meet(c);
    const int verdict = take_exchange(c);
    if (verdict != 0) return verdict == 1;
    reach = min(reach, 1 << 25) * 4;
  }
  return false;
}

}  // namespace ballast::assignment::on_chip
