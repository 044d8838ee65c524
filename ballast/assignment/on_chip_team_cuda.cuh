// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cooperative_groups.h>

#include "ballast/assignment/on_chip_paths_cuda.cuh"
#include "ballast/assignment/on_chip_state_cuda.cuh"

// How the blocks of a problem meet and tell each other what they found. Those of a cluster write
// into each other's shared memory. Others meet at a desk in device memory: a meeting takes longer
// there, but a team can have as many blocks as the device.
namespace ballast::assignment::on_chip {

constexpr int kSumTurns = 3;
constexpr int kLoadBits = 42;  // of a sum at the desk; above them is a count
constexpr float kLoadUnit = 1 << 24;

// A token at an expert with too many, and the best of those with room for it.
struct Offer {
  unsigned loss;  // bits of a float that is not negative; kNoOffer: none
  uint16_t token;
  uint8_t from, to;
};
constexpr unsigned kNoOffer = 0xffffffffu;

// A token that could be at another expert.
struct alignas(8) NearPair {
  unsigned loss;
  uint16_t group;  // the token, by its place in the lists
  uint8_t to;
};

// Tokens that could, for the first block.
struct NearLists {
  NearPair pair[kPairs];
  uint16_t token[kGroups];
  uint8_t own[kGroups];  // their experts
};

// Device memory of a team.
template <int kExperts>
struct alignas(256) Desk {
  unsigned counter;                                           // how often a block has arrived
  alignas(128) unsigned long long sums[kSumTurns][kExperts];  // of loads, and counts; in turn
  // What is above must be zero at the launch.
  alignas(128) Note<kExperts> notes[2][kOnChipTeam];
  float squares[kOnChipTeam][kExperts];
  uint2 products[kOnChipTeam][kExperts * kExperts / 4];  // [E, E] of each block, in bf16
  uint2 curvature[kExperts * kExperts / 4];              // their sum
  Paths<kExperts> paths;                                 // lists alone
  NearLists near;
  int quanta[kExperts], hard[kExperts], verdict;
  alignas(16) Offer offers[kOnChipTokens];
  uint16_t of_expert[kOnChipTokens];
  uint8_t own[kOnChipTokens];
};

// All threads of all blocks of the team wait here for each other.
template <int kExperts, Meeting kMeeting>
__device__ inline void meet(Chip<kExperts, kMeeting>& c) {
  if (!c.at_desk()) {
    cooperative_groups::this_cluster().sync();
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    c.goal += static_cast<unsigned>(c.blocks);
    meet_at(&c.desk->counter, c.goal);
  }
  __syncthreads();
}

// Nobody may write into a block's memory before it has begun: blocks arrive when they begin, and
// wait for each other before the first has something to tell.
template <int kExperts, Meeting kMeeting>
__device__ inline void begin_team(Chip<kExperts, kMeeting>& c) {
  if (!c.at_desk()) cooperative_groups::this_cluster().barrier_arrive();
}
template <int kExperts, Meeting kMeeting>
__device__ inline void await_team(Chip<kExperts, kMeeting>& c) {
  if (!c.at_desk()) cooperative_groups::this_cluster().barrier_wait();
}

// How many copies there are of what a block tells: one for each block of a cluster, or the desk's.
template <int kExperts, Meeting kMeeting>
__device__ inline int copies(const Chip<kExperts, kMeeting>& c) {
  return !c.at_desk() ? c.blocks : 1;
}

// A copy of this block's note.
template <int kExperts, Meeting kMeeting>
__device__ inline Note<kExperts>& note_for(Chip<kExperts, kMeeting>& c, int copy, int turn) {
  if (c.at_desk()) return c.desk->notes[turn][c.rank];
  return *cooperative_groups::this_cluster().map_shared_rank(c.notes() + turn * c.blocks + c.rank,
                                                             copy);
}

// What `block` told this one.
template <int kExperts, Meeting kMeeting>
__device__ inline const Note<kExperts>& note_of(Chip<kExperts, kMeeting>& c, int block, int turn) {
  return c.at_desk() ? c.desk->notes[turn][block] : c.notes()[turn * c.blocks + block];
}

// The experts of a team's tokens, where one block changes those of others: at the desk every block
// shows its own before and takes them back afterwards.
template <int kExperts, Meeting kMeeting>
__device__ inline void show_own(Chip<kExperts, kMeeting>& c) {
  if (c.at_desk()) {
    for (int row = threadIdx.x; row < c.count; row += kThreads)
      c.desk->own[c.first + row] = c.own[row];
  }
}
template <int kExperts, Meeting kMeeting>
__device__ inline void take_own(Chip<kExperts, kMeeting>& c) {
  for (int row = threadIdx.x; row < c.count; row += kThreads)
    c.own[row] = c.desk->own[c.first + row];
}
template <int kExperts, Meeting kMeeting>
__device__ inline void set_own(Chip<kExperts, kMeeting>& c, int token, int expert) {
  uint8_t* own = c.at_desk() ? &c.desk->own[token]
                             : &cooperative_groups::this_cluster()
                                    .map_shared_rank(&c, token / c.rows)
                                    ->own[token % c.rows];
  *own = static_cast<uint8_t>(expert);
}

// The first block tells all others how far loads are above the share, and its verdict.
template <int kExperts, Meeting kMeeting>
__device__ inline void tell_loads(Chip<kExperts, kMeeting>& c, const int* surplus, int verdict) {
#pragma unroll 1
  for (int i = threadIdx.x; i < copies(c) * kExperts; i += kThreads) {
    const int e = i % kExperts;
    Chip<kExperts, kMeeting>* there =
        !c.at_desk() ? cooperative_groups::this_cluster().map_shared_rank(&c, i / kExperts)
                     : nullptr;
    (there != nullptr ? there->hard : c.desk->hard)[e] = c.even + surplus[e];
    if (e == 0) (there != nullptr ? there->verdict : c.desk->verdict) = verdict;
  }
}

// What it told, for each block, once all have met: loads in c.hard, experts in c.own. Returns the
// verdict.
template <int kExperts, Meeting kMeeting>
__device__ inline int take_loads(Chip<kExperts, kMeeting>& c) {
  if (c.at_desk()) {
    if (threadIdx.x < kExperts) c.hard[threadIdx.x] = c.desk->hard[threadIdx.x];
    if (threadIdx.x == 0) c.verdict = c.desk->verdict;
    take_own(c);
    __syncthreads();
  }
  return c.verdict;
}

// Sums over blocks of what part(block, expert) gives, in the same order everywhere, for
// take(expert, sum). Takes c.warp_sums.
template <typename Value, int kExperts, Meeting kMeeting, typename Part, typename Take>
__device__ inline void sum_blocks(Chip<kExperts, kMeeting>& c, Part part, Take take) {
  constexpr int kSplit = Layout<kExperts>::kSplit;
  static_assert(sizeof(Value) == sizeof(float) && kSplit <= kWarps);
  const int e = threadIdx.x % kExperts;
  [[maybe_unused]] constexpr int kAtOnce =
      kMeeting == Meeting::kDesk ? 8 : (kSplit < 16 ? 16 / kSplit : 1);
  Value sum = 0;
#pragma unroll kAtOnce
  for (int block = threadIdx.x / kExperts; block < c.blocks; block += kSplit) sum += part(block, e);
  auto* sums = reinterpret_cast<Value*>(c.warp_sums);
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < kExperts) {
    sum = 0;
#pragma unroll
    for (int i = 0; i < kSplit; ++i) sum += sums[i * kExperts + e];
    take(e, sum);
  }
}

template <int kExperts, Meeting kMeeting>
__device__ inline float sum_of_warps(const Chip<kExperts, kMeeting>& c, int expert) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += c.warp_sums[warp][expert];
  return sum;
}

// share_sums at the desk: in fixed point, so that it does not matter who comes first.
template <int kExperts, Meeting kMeeting>
__device__ inline void share_sums_at_desk(Chip<kExperts, kMeeting>& c, bool counts) {
  const int turn = c.sum_turn, next = (turn + 1) % kSumTurns, e = threadIdx.x;
  if (e < kExperts) {
    unsigned long long sum = __float2ull_rn(sum_of_warps(c, e) * kLoadUnit);
    if (counts) sum |= static_cast<unsigned long long>(c.counts[e]) << kLoadBits;
    atomicAdd(&c.desk->sums[turn][e], sum);
    if (c.rank == 0) c.desk->sums[next][e] = 0;  // all have read it before they came to this turn
  }
  meet(c);
  if (e < kExperts) {
    const unsigned long long sum = c.desk->sums[turn][e];
    c.load[e] = __ull2float_rn(sum & ((1ull << kLoadBits) - 1)) / kLoadUnit;
    if (counts) c.hard[e] = static_cast<int>(sum >> kLoadBits);
  }
  if (threadIdx.x == 0) c.sum_turn = next;
  __syncthreads();
}

// put(i, key, place) for each i < count, with key = key_of(i); none where that is kExperts. `place`
// counts those with the same key before it, from start[key] on, which moves behind the last: in the
// order of i, whichever thread comes first. `before`: shared memory, [kWarps, E].
template <int kExperts, typename KeyOf, typename Put>
__device__ inline void place_in_order(int count, int* start, int* before, KeyOf key_of, Put put) {
  const int warp = threadIdx.x / 32;
#pragma unroll 1
  for (int base = 0; base < count; base += kThreads) {
    for (int i = threadIdx.x; i < kWarps * kExperts; i += kThreads) before[i] = 0;
    __syncthreads();
    const int i = base + static_cast<int>(threadIdx.x);
    const int key = i < count ? key_of(i) : kExperts;
    const unsigned same = __match_any_sync(kAll, key);
    const int rank = __popc(same & ((1u << threadIdx.x % 32) - 1u));
    if (rank == 0 && key < kExperts) before[warp * kExperts + key] = __popc(same);
    __syncthreads();
    if (threadIdx.x < kExperts) {
      int sum = start[threadIdx.x];
      for (int other = 0; other < kWarps; ++other) {
        const int here = before[other * kExperts + threadIdx.x];
        before[other * kExperts + threadIdx.x] = sum;
        sum += here;
      }
      start[threadIdx.x] = sum;
    }
    __syncthreads();
    if (key < kExperts) put(i, key, before[warp * kExperts + key] + rank);
    __syncthreads();
  }
}

// The sums of all blocks' warp_sums, in c.load; with `counts` also those of c.counts, in c.hard.
template <int kExperts, Meeting kMeeting>
__device__ inline void share_sums(Chip<kExperts, kMeeting>& c, bool counts) {
  __syncthreads();
  if (c.at_desk()) {
    share_sums_at_desk(c, counts);
    return;
  }
  const int turn = c.turn;
  const int e = threadIdx.x % kExperts;
  float sum = sum_of_warps(c, e);
  for (int copy = threadIdx.x / kExperts; copy < c.blocks; copy += Layout<kExperts>::kSplit) {
    Note<kExperts>& note = note_for(c, copy, turn);
    note.load[e] = sum;
    if (counts) note.count[e] = static_cast<uint16_t>(c.counts[e]);
  }
  meet(c);
  if (threadIdx.x < kExperts) {
    const Note<kExperts>* notes = c.notes() + turn * c.blocks;
    sum = 0;
    int count = 0;
#pragma unroll 4
    for (int block = 0; block < c.blocks; ++block) {
      sum += notes[block].load[e];
      if (counts) count += notes[block].count[e];
    }
    c.load[e] = sum;
    if (counts) c.hard[e] = count;
  }
  if (threadIdx.x == 0) c.turn = 1 - turn;
  __syncthreads();
}

}  // namespace ballast::assignment::on_chip
