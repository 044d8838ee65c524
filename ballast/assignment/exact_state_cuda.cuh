// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_cuda.h"
#include "ballast/assignment/exact_warp_cuda.cuh"

// What the exact solver's kernel works with. It goes through four phases, each in files of its own
// (exact_scan_*, exact_prices_*, exact_repair_*, exact_output_*): scan looks at the scores, prices
// brings loads nearly into balance, repair makes them exact, output writes. Each phase has a state
// that its functions alone take; what all of them know is a Problem.
namespace ballast::assignment::exact_cuda {

constexpr int kBins = 256;  // of gaps, by their logarithm
constexpr int kCounts = 8;  // further sums of a pass
constexpr int kHeavy = 8;   // experts of a token that enter the curvature, where it has few
constexpr int kParts = 4;   // sums in double that each block leaves

struct Shape {
  int tokens, experts;
  int team;          // blocks for one problem
  int teams;         // problems at a time
  int chunk;         // tokens of one block
  int region_pairs;  // (token, expert) pairs that one block can put into a window
  int table;         // slots of the hash table, a power of two
};

struct Arguments {
  CudaProblems problems;
  CudaAssignments results;
  double gap;  // that the caller allows
  long long max_work;
  Shape shape;
  const int* solved;  // [problems], or null: 1 where nothing is left to do
  char* workspace;    // one Work for each team
  size_t workspace_stride;
  int shared_bytes;
};

// Which of a row's scores a thread has: kLanes threads read a row, kValues each, four at a time.
template <int C, int L>
struct Map {
  static constexpr int kValues = C, kLanes = L, kWidth = C * L, kTogether = 32 / L;
  __device__ static constexpr int expert(int lane, int i) {
    return i / 4 * 4 * L + lane * 4 + i % 4;
  }
  __device__ static constexpr int lane_of(int expert) { return expert % (4 * L) / 4; }
};

// Where the scores are and how to read them.
struct Rows {
  const void* data;
  const uint8_t* counted;
  int64_t token_stride, expert_stride;
  const char* base;  // of rows that can be read four scores at a time, or null
  int64_t pitch;     // bytes from one of them to the next
  int origin;        // the token of the first
  char* stage;       // shared memory for a copy of this block's rows, or null
  ScoreType type;
  int tokens, experts;
  int first, last;  // tokens of this block
  int mend;         // 1: what is not finite is `lowest`; 2: but -inf stays; 4: times `lift`
  float lowest;
  float lift;
};

// What blocks of a team add up in a pass.
struct Sums {
  long long* soft;    // [E] of probabilities, in fixed point
  long long* square;  // [E] of their squares
  long long* counts;  // [kCounts]
  int* hard;          // [E] tokens whose best expert this is
  int* bins;          // [kBins]
};

// Such sums, three in turn.
struct Passes {
  char* memory;
  size_t bytes;  // of one
  int turn;

  __device__ Sums now(int experts) const {
    Sums sums;
    sums.soft = reinterpret_cast<long long*>(memory + turn % 3 * bytes);
    sums.square = sums.soft + experts;
    sums.counts = sums.square + experts;
    sums.hard = reinterpret_cast<int*>(sums.counts + kCounts);
    sums.bins = sums.hard + experts;
    return sums;
  }
};

// For what threads of a block do together.
struct Scratch {
  double sums[32];
  long long longs[32];
  float floats[3 * 32];
  int ints[32];
  int flag;
  char* arena;  // shared memory that is left
  int arena_bytes;
};

// What all phases know of the problem that is being solved.
struct Problem {
  const Arguments* arguments;
  Rows rows;
  Passes passes;
  Scratch scratch;
  int number;
  int experts;
  int counted;  // tokens that are not padding
  int padding;
  int empty;   // places that stay empty
  int forbid;  // 1: there are forbidden pairs
  int infeasible;
  int exponent;        // of the largest score, as read
  double soft_scale;   // scores times this are in [-1, 1]
  double exact_scale;  // scores (as read) times this, rounded, are quanta
  double range;        // of the scores, times soft_scale
  double deviation;    // of the scores about their expert's mean, times soft_scale
  // [E]
  double* price;  // soft, or in quanta
  int* hard;      // tokens at each expert; what else a phase counts
  int* lower;
  int* upper;

  __device__ bool has_classes() const { return padding > 0 || empty > 0; }
};

// What the first look at the scores finds. Everything starts at 0 and only grows.
struct Head {
  unsigned long long first_bad;  // ~(token * E + expert) of the first score that is refused
  unsigned long long replaced;
  unsigned largest;    // bits of the largest finite magnitude
  unsigned highest;    // finite scores in an order-preserving code,
  unsigned lowest;     // and its complement
  unsigned forbidden;  // 1: there are -inf that forbid
  unsigned hopeless;   // 1: a token has no allowed expert
  unsigned counted;    // tokens that are not padding
};

// The scan's.
struct Scan {
  Head* head;
  int* block_padding;  // [team] padding tokens of each block
};

// A list of experts with much of a token's probability.
struct Heavy {
  int count;
  int expert[kHeavy];
  float weight[kHeavy];
};

// Of the prices: sums of passes that spread tokens over experts, and the curvature.
struct Prices {
  int* hessian;         // three [E, E] in turn
  float* team_product;  // two [E] in turn
  Heavy* heavy;         // [warps, rows in a warp]
  int fixed_bits;       // of probabilities' sums
  int curve_bits;       // of the Hessian
  int spread_every;     // of tokens with many likely experts, one in this many enters it
  // [E]
  double* best;      // the best prices so far
  float* bias;       // prices as a pass takes them
  float* direction;  // that the Hessian is multiplied by,
  float* product;    // and what that gives
  float* padding;    // padding tokens at each expert, spread like the others
  float* empty;      // empty places, likewise
  float* slope;      // how fast these follow prices
  float* load;       // sums of probabilities
  float* squares;    // and of their squares
  int* soft;         // this block's, in fixed point
  int* square;

  __device__ int* hessian_of(int turn, int experts) const {
    return hessian + static_cast<size_t>(turn) * experts * experts;
  }
};

// What the block that solves a window tells the others.
struct Verdict {
  int balanced;  // all loads keep to their bounds
  int moved;     // tokens have changed their experts
  int large;     // the window did not fit into shared memory
  int stuck;     // no room can be reached in the window, however high the prices
  int spent;     // the work that the caller allows is done
  int overflow;  // 1 + the last round in which lists were left out for want of memory
};

// Tokens of the window, [T] each: those of a block from its first token onwards.
struct Entries {
  int* token;
  int* first;  // the first token of the window with the same list
  int* pairs;  // length of its list; 0: another token's list is meant; -1: left out
  int* start;  // where its list starts in the region
  int* rank;   // lists before it in the region
  int* count;  // tokens with its list
};

// The lists that blocks write, each to its region, and how many there are of each block.
struct Lists {
  long long* slack;  // [team, region_pairs]
  uint16_t* expert;
  int* entries;  // [team]
  int* groups;
  int* pairs;
};

// Hashes of lists.
struct Table {
  unsigned long long* key;  // [table]
  int* first;
  int* count;
};

// Room for a core that does not fit into shared memory.
struct CoreMemory {
  int* start;  // [T + 3]
  int* crowd;  // [T + 3]
  long long* slack;
  unsigned* ends;
  int* group;
  int* held;
};

// Of the repair: a window of tokens that are near to leaving their expert, as one block solves it.
struct Repair {
  Verdict* verdict;
  double* prices;  // [E] in quanta, from the block that solved the window
  float* gap;      // [T] distance of the second best expert
  Entries entries;
  Lists lists;
  Table table;
  CoreMemory core;
  int* group_of;        // [T] of first tokens; later of tokens
  int bins[kBins];      // of this block's gaps
  long long work_left;  // pairs that may still be looked at; the first block of a team's
};

// What the repair finds and the output writes.
struct Solution {
  int* place[2];    // [T] expert of each token, in turn
  int newest;       // which of them
  int* padding_at;  // [E] padding tokens at each expert
  int* empty_at;    // [E] places left empty
  double* parts;    // [team, kParts] what the assignment is worth

  __device__ int* now() const { return place[newest]; }
  __device__ int* next() const { return place[1 - newest]; }
};

// Of the output.
struct Output {
  int* sort_counts;  // [team, E]
  int* begin;        // [E], shared memory
};

// All phases of a team. The device memory of each is laid out here.
struct Work {
  unsigned* counter;  // of Team
  Passes passes;
  Scan scan;
  Prices prices;
  Repair repair;
  Solution solution;
  Output output;
  size_t cleared;  // bytes from `counter` on that are 0 when a problem begins
  size_t bytes;
};

template <typename T>
__host__ __device__ inline void carve(T*& array, char* base, size_t& offset, size_t count) {
  array = reinterpret_cast<T*>(base + offset);
  offset += (count * sizeof(T) + 255) / 256 * 256;
}

__host__ __device__ inline void lay_out(Repair& r, const Shape& shape, char* base, size_t& at) {
  const size_t t = shape.tokens, e = shape.experts, team = shape.team;
  const size_t pairs = team * shape.region_pairs;
  carve(r.prices, base, at, e);
  carve(r.gap, base, at, t);
  carve(r.lists.entries, base, at, team);
  carve(r.lists.groups, base, at, team);
  carve(r.lists.pairs, base, at, team);
  carve(r.entries.token, base, at, t);
  carve(r.entries.first, base, at, t);
  carve(r.entries.pairs, base, at, t);
  carve(r.entries.start, base, at, t);
  carve(r.entries.rank, base, at, t);
  carve(r.entries.count, base, at, t);
  carve(r.lists.slack, base, at, pairs);
  carve(r.lists.expert, base, at, pairs);
  carve(r.table.key, base, at, shape.table);
  carve(r.table.first, base, at, shape.table);
  carve(r.table.count, base, at, shape.table);
  carve(r.core.start, base, at, t + 3);
  carve(r.core.crowd, base, at, t + 3);
  carve(r.core.slack, base, at, pairs + 2 * e);
  carve(r.core.ends, base, at, pairs + 2 * e);
  carve(r.core.group, base, at, pairs + 2 * e);
  carve(r.core.held, base, at, pairs + 2 * e);
  carve(r.group_of, base, at, t);
}

__host__ __device__ inline Work lay_out(const Shape& shape, char* base) {
  const size_t t = shape.tokens, e = shape.experts, team = shape.team;
  size_t at = 0;
  Work w;
  carve(w.counter, base, at, 1);
  carve(w.scan.head, base, at, 1);
  carve(w.repair.verdict, base, at, 1);
  w.passes.bytes = (2 * e + kCounts) * sizeof(long long) + (e + kBins) * sizeof(int);
  w.passes.bytes = (w.passes.bytes + 255) / 256 * 256;
  carve(w.passes.memory, base, at, 3 * w.passes.bytes);
  w.cleared = at;
  carve(w.scan.block_padding, base, at, team);
  carve(w.prices.hessian, base, at, 3 * e * e);
  carve(w.prices.team_product, base, at, 2 * e);
  lay_out(w.repair, shape, base, at);
  carve(w.solution.place[0], base, at, t);
  carve(w.solution.place[1], base, at, t);
  carve(w.solution.padding_at, base, at, e);
  carve(w.solution.empty_at, base, at, e);
  carve(w.solution.parts, base, at, team * kParts);
  carve(w.output.sort_counts, base, at, team * e);
  w.bytes = at;
  return w;
}

template <typename T>
__device__ inline T* from_arena(char*& at, size_t count) {
  T* found = reinterpret_cast<T*>(at);
  at += (count * sizeof(T) + 15) / 16 * 16;
  return found;
}

// Shared memory of a block: this, then arrays of E, then what is left.
struct Block {
  Problem problem;
  Work work;
};

}  // namespace ballast::assignment::exact_cuda
