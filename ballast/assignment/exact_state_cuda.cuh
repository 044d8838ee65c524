// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_cuda.h"
#include "ballast/assignment/exact_warp_cuda.cuh"

// What the exact solver's kernel works with: its arguments, its device memory, its shared memory.
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

// What the block that solves a window tells the others.
struct Verdict {
  int balanced;  // all loads keep to their bounds
  int moved;     // tokens have changed their experts
  int large;     // the window did not fit into shared memory
  int stuck;     // no room can be reached in the window, however high the prices
  int spent;     // the work that the caller allows is done
  int overflow;  // 1 + the last round in which lists were left out for want of memory
};

struct Sums {
  long long* soft;    // [E] of probabilities, in fixed point
  long long* square;  // [E] of their squares
  long long* counts;  // [kCounts]
  int* hard;          // [E] tokens whose best expert this is
  int* bins;          // [kBins]
};

// Device memory of one team.
struct Work {
  unsigned* counter;  // of Team
  Head* head;
  Verdict* verdict;
  char* sums;  // three Sums in turn
  size_t sums_bytes;
  size_t cleared;      // bytes from `counter` on that are 0 when a problem begins
  int* hessian;        // three [E, E] in turn
  float* product;      // two [E] in turn
  double* prices;      // [E] in quanta
  int* padding_at;     // [E] padding tokens at each expert
  int* empty_at;       // [E] places left empty
  int* place[2];       // [T] expert of each token, in turn
  float* gap;          // [T] distance of the second best expert
  int* block_padding;  // [team] padding tokens, later what other things each block has
  int* block_entries;
  int* block_groups;
  int* block_pairs;
  int* entry_token;  // [T] tokens of the window, at their block's first token onwards
  int* entry_first;  // [T] the first token of the window with the same list
  int* entry_pairs;  // [T] length of its list; 0: another token's list is meant; -1: left out
  int* entry_start;  // [T] where its list starts in the region
  int* entry_rank;   // [T] lists before it in the region
  int* entry_count;  // [T] tokens with its list
  long long* region_slack;  // [team, region_pairs]
  uint16_t* region_expert;
  unsigned long long* table_key;  // [table]
  int* table_first;
  int* table_count;
  int* core_start;  // [T + 3]
  int* core_crowd;  // [T + 3]
  long long* core_slack;
  unsigned* core_ends;
  int* core_group;
  int* core_held;
  int* group_of;     // [T] of first tokens; later of tokens
  int* sort_counts;  // [team, E]
  double* parts;     // [team, kParts]
  size_t bytes;
};

template <typename T>
__host__ __device__ inline T* carve(char* base, size_t& offset, size_t count) {
  T* at = reinterpret_cast<T*>(base + offset);
  offset += (count * sizeof(T) + 255) / 256 * 256;
  return at;
}

__host__ __device__ inline Work lay_out(const Shape& shape, char* base) {
  const size_t t = shape.tokens, e = shape.experts, team = shape.team;
  const size_t pairs = team * shape.region_pairs;
  size_t at = 0;
  Work w;
  w.counter = carve<unsigned>(base, at, 1);
  w.head = carve<Head>(base, at, 1);
  w.verdict = carve<Verdict>(base, at, 1);
  w.sums_bytes = (2 * e + kCounts) * sizeof(long long) + (e + kBins) * sizeof(int);
  w.sums_bytes = (w.sums_bytes + 255) / 256 * 256;
  w.sums = carve<char>(base, at, 3 * w.sums_bytes);
  w.cleared = at;
  w.hessian = carve<int>(base, at, 3 * e * e);
  w.product = carve<float>(base, at, 2 * e);
  w.prices = carve<double>(base, at, e);
  w.padding_at = carve<int>(base, at, e);
  w.empty_at = carve<int>(base, at, e);
  w.place[0] = carve<int>(base, at, t);
  w.place[1] = carve<int>(base, at, t);
  w.gap = carve<float>(base, at, t);
  w.block_padding = carve<int>(base, at, team);
  w.block_entries = carve<int>(base, at, team);
  w.block_groups = carve<int>(base, at, team);
  w.block_pairs = carve<int>(base, at, team);
  w.entry_token = carve<int>(base, at, t);
  w.entry_first = carve<int>(base, at, t);
  w.entry_pairs = carve<int>(base, at, t);
  w.entry_start = carve<int>(base, at, t);
  w.entry_rank = carve<int>(base, at, t);
  w.entry_count = carve<int>(base, at, t);
  w.region_slack = carve<long long>(base, at, pairs);
  w.region_expert = carve<uint16_t>(base, at, pairs);
  w.table_key = carve<unsigned long long>(base, at, shape.table);
  w.table_first = carve<int>(base, at, shape.table);
  w.table_count = carve<int>(base, at, shape.table);
  w.core_start = carve<int>(base, at, t + 3);
  w.core_crowd = carve<int>(base, at, t + 3);
  w.core_slack = carve<long long>(base, at, pairs + 2 * e);
  w.core_ends = carve<unsigned>(base, at, pairs + 2 * e);
  w.core_group = carve<int>(base, at, pairs + 2 * e);
  w.core_held = carve<int>(base, at, pairs + 2 * e);
  w.group_of = carve<int>(base, at, t);
  w.sort_counts = carve<int>(base, at, team * e);
  w.parts = carve<double>(base, at, team * kParts);
  w.bytes = at;
  return w;
}

__device__ inline Sums sums_of(const Work& w, int experts, int turn) {
  char* at = w.sums + (turn % 3) * w.sums_bytes;
  Sums sums;
  sums.soft = reinterpret_cast<long long*>(at);
  sums.square = sums.soft + experts;
  sums.counts = sums.square + experts;
  sums.hard = reinterpret_cast<int*>(sums.counts + kCounts);
  sums.bins = sums.hard + experts;
  return sums;
}

struct Arguments {
  CudaProblems problems;
  CudaAssignments results;
  double gap;  // that the caller allows
  long long max_work;
  Shape shape;
  char* workspace;  // one Work for each team
  size_t workspace_stride;
  int shared_bytes;
};

// A list of experts with much of a token's probability.
struct Heavy {
  int count;
  int expert[kHeavy];
  float weight[kHeavy];
};

// Which of a row's scores a thread has: kLanes threads read a row, kValues each, four at a time.
template <int C, int L>
struct Map {
  static constexpr int kValues = C, kLanes = L, kWidth = C * L, kTogether = 32 / L;
  __device__ static constexpr int expert(int lane, int i) {
    return i / 4 * 4 * L + lane * 4 + i % 4;
  }
  __device__ static constexpr int lane_of(int expert) { return expert % (4 * L) / 4; }
  __device__ static constexpr int index_of(int expert) { return expert / (4 * L) * 4 + expert % 4; }
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

// Shared memory of a block: this, then arrays of E, then what is left (`arena`).
struct Block {
  Rows rows;
  Work work;
  const Arguments* arguments;
  double sum_scratch[32];
  long long long_scratch[32];
  float float_scratch[3 * 32];
  int int_scratch[32];
  int bins[kBins];
  Heavy* heavy;        // [warps, rows in a warp]
  double soft_scale;   // scores times this are in [-1, 1]
  double exact_scale;  // scores (as read) times this, rounded, are quanta
  double range;        // of the scores, times soft_scale
  double deviation;    // of the scores about their expert's mean, times soft_scale
  int exponent;        // of the largest score, as read
  int problem;
  int experts;
  int counted;  // tokens that are not padding
  int padding;
  int empty;            // places that stay empty
  int fixed_bits;       // of probabilities' sums
  int curve_bits;       // of the Hessian
  int spread_every;     // of tokens with many likely experts, one in this many enters it
  long long work_left;  // pairs that the repair may still look at; the first block of a team's
  int forbid;
  int infeasible;
  int turn;   // of the sums
  int place;  // which of work.place holds the newest assignment
  int flag;
  // [E]
  double* price;  // soft, or in quanta
  double* best;
  float* bias;
  float* vector[12];
  int* hard;
  int* soft;
  int* square;
  int* lower;
  int* upper;
  char* arena;
  int arena_bytes;
};

}  // namespace ballast::assignment::exact_cuda
