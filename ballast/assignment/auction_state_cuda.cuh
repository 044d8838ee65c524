// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/assignment_output_cuda.h"
#include "ballast/assignment/score_reader_cuda.cuh"

// What the auction's kernels share.
namespace ballast::assignment {

inline constexpr int kAuctionRounds = 100;

struct AuctionMemory {
  OutputMemory output;
  float* scores = nullptr;             // [problems, E, T] scaled; -inf: forbidden, or padding
  float* price = nullptr;              // [problems, T]
  unsigned long long* high = nullptr;  // [problems, T] the highest bid of the round, see pack_bid
  int32_t* holder = nullptr;           // [problems, T], -1: none
  int32_t* without = nullptr;          // [kAuctionRounds, problems] counted tokens without a holder
  float* worth_of_next = nullptr;      // [problems, E]
  uint32_t* least_worth = nullptr;     // [problems, E] order codes
  int32_t* loads = nullptr;            // [problems, E] tokens held
  int32_t* reached = nullptr;          // [problems, E] for chains: see AuctionCompletion
  unsigned long long* via = nullptr;   // [problems, E]
};

// A power of two that keeps sums of prices in range, as in AuctionSolver.
__device__ inline float auction_scale(const ScoreFacts& facts) {
  int exponent = 0;
  frexpf(fmaxf(fabsf(lowest_score(facts)), fabsf(largest_score(facts))), &exponent);
  return ldexpf(1.0F, min(max(-exponent, -126), 126));
}
__device__ inline float auction_range(const ScoreFacts& facts) {
  const float scale = auction_scale(facts);
  return fmaxf(0.0F, largest_score(facts) * scale - lowest_score(facts) * scale);
}
__device__ inline float auction_increment(const ScoreFacts& facts) {
  const float range = auction_range(facts);
  return range > 0 ? range / 50 : 1.0F;
}

// Bids order by amount, then the holder first, then by expert. 0: no bid.
constexpr uint32_t kHolder = 0xffffffffU;
__device__ inline unsigned long long pack_bid(float amount, uint32_t bidder) {
  return static_cast<unsigned long long>(__float_as_uint(amount)) << 32 | bidder;
}
__device__ inline uint32_t bidder_of(int32_t expert) { return kHolder - 1 - expert; }
__device__ inline int32_t expert_of(uint32_t bidder) {
  return static_cast<int32_t>(kHolder - 1 - bidder);
}

// Completes one problem with one block of threads, and sets prices (auction_completion_cuda.cu).
void launch_auction_completion(const CudaProblems& problems, const CudaAssignments& results,
                               const AuctionMemory& memory, cudaStream_t stream);

}  // namespace ballast::assignment
