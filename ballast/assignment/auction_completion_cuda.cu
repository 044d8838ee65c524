// SPDX-License-Identifier: Apache-2.0
// What the auction leaves open, one block of threads a problem; see completion.h for the method.
#include "ballast/assignment/auction_state_cuda.cuh"
#include "ballast/assignment/launch_check.h"

namespace ballast::assignment {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / 32;

// A choice among many, by value and then by the smaller index; index -1: none.
struct Best {
  double value = -INFINITY;
  int32_t index = -1, expert = -1;
};

__device__ inline void take_better(Best& a, const Best& b) {
  if (b.index < 0) return;
  if (a.index < 0 || b.value > a.value || (b.value == a.value && b.index < a.index)) a = b;
}

// The best over all threads of the block, for all of them.
__device__ Best block_best(Best best) {
  __shared__ Best of_warp[kWarps];
  for (int offset = 16; offset > 0; offset /= 2) {
    Best other;
    other.value = __shfl_xor_sync(0xffffffffU, best.value, offset);
    other.index = __shfl_xor_sync(0xffffffffU, best.index, offset);
    other.expert = __shfl_xor_sync(0xffffffffU, best.expert, offset);
    take_better(best, other);
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
  __syncthreads();
  best = of_warp[0];
  for (int w = 1; w < kWarps; ++w) take_better(best, of_warp[w]);
  __syncthreads();
  return best;
}

__device__ int64_t block_total(int64_t value) {
  __shared__ int64_t of_warp[kWarps];
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  int64_t total = 0;
  for (int w = 0; w < kWarps; ++w) total += of_warp[w];
  __syncthreads();
  return total;
}

// One problem's state. Every method is called by all threads of the block together.
class AuctionCompletion {
 public:
  __device__ AuctionCompletion(const CudaProblems& problems, const CudaAssignments& results,
                               const AuctionMemory& memory, int32_t problem)
      : problems_(problems),
        facts_(memory.output.facts[problem]),
        tokens_(problems.tokens),
        experts_(problems.experts),
        problem_(problem) {
    const int64_t first_token = static_cast<int64_t>(problem) * tokens_;
    const int64_t first_expert = static_cast<int64_t>(problem) * experts_;
    scores_ = memory.scores + first_token * experts_;
    price_of_token_ = memory.price + first_token;
    holder_ = memory.holder + first_token;
    worth_of_next_ = memory.worth_of_next + first_expert;
    least_worth_ = memory.least_worth + first_expert;
    loads_ = memory.loads + first_expert;
    reached_ = memory.reached + first_expert;
    via_ = memory.via + first_expert;
    prices_ = results.prices + first_expert;
    expert_of_token_ = results.expert_of_token + first_token;
  }

  __device__ void complete() {
    set_prices();
    place_tokens();
    fill_lower_bounds();
    for (int32_t t = threadIdx.x; t < tokens_; t += kThreads)
      expert_of_token_[t] = max(holder_[t], 0);
  }

 private:
  __device__ float score(int32_t token, int32_t expert) const {
    return scores_[static_cast<int64_t>(expert) * tokens_ + token];
  }
  __device__ bool may_have(int32_t token, int32_t expert) const {
    return score(token, expert) != minus_infinity();
  }
  __device__ int32_t lower(int32_t expert) const { return lower_bound_of(problems_, expert); }
  __device__ int32_t upper(int32_t expert) const { return upper_bound_of(problems_, expert); }

  __device__ void set_prices();
  __device__ void place_tokens();
  __device__ void place(int32_t token);
  __device__ bool place_by_chain(int32_t token);
  __device__ void fill_lower_bounds();
  __device__ bool fill_one();
  __device__ bool fill_by_chain();
  template <typename Wanted>
  __device__ int32_t find_taker(Wanted wanted);
  __device__ void reach_further(int32_t step);
  __device__ int32_t move_chain(int32_t taker);

  const CudaProblems& problems_;
  ScoreFacts& facts_;
  int32_t tokens_, experts_, problem_;
  const float *scores_, *price_of_token_, *worth_of_next_;
  int32_t *holder_, *loads_, *reached_, *expert_of_token_;
  uint32_t* least_worth_;
  unsigned long long* via_;
  double* prices_;
};

// As in AuctionSolver::set_prices.
__device__ void AuctionCompletion::set_prices() {
  for (int32_t e = threadIdx.x; e < experts_; e += kThreads) least_worth_[e] = 0xffffffffU;
  __syncthreads();
  for (int32_t t = threadIdx.x; t < tokens_; t += kThreads) {
    const int32_t holder = holder_[t];
    if (holder < 0) continue;
    atomicMin(&least_worth_[holder], order_code(score(t, holder) - price_of_token_[t]));
  }
  __syncthreads();
  Best lowest;  // its value is minus the lowest worth
  for (int32_t e = threadIdx.x; e < experts_; e += kThreads) {
    prices_[e] = loads_[e] > 0 ? from_order_code(least_worth_[e]) : worth_of_next_[e];
    take_better(lowest, {.value = -prices_[e], .index = e, .expert = e});
  }
  lowest = block_best(lowest);
  const double scale = auction_scale(facts_), range = auction_range(facts_);
  for (int32_t e = threadIdx.x; e < experts_; e += kThreads) {
    prices_[e] = fmin(prices_[e] + lowest.value, range) / scale;
  }
  __syncthreads();
}

__device__ void AuctionCompletion::place_tokens() {
  __shared__ unsigned open[kWarps];
  for (int32_t base = 0; base < tokens_; base += kThreads) {
    const int32_t token = base + static_cast<int32_t>(threadIdx.x);
    const bool without =
        token < tokens_ && holder_[token] < 0 && is_counted(problems_, problem_, token);
    const unsigned lanes = __ballot_sync(0xffffffffU, without);
    if (threadIdx.x % 32 == 0) open[threadIdx.x / 32] = lanes;
    if (__syncthreads_or(without ? 1 : 0) == 0) continue;
    for (int w = 0; w < kWarps; ++w) {
      for (unsigned left = open[w]; left != 0; left &= left - 1) {
        place(base + 32 * w + __ffs(static_cast<int>(left)) - 1);
      }
    }
    __syncthreads();
  }
}

// To the best expert with room; looked at from another one for each token, so that equal ones fill
// evenly.
__device__ void AuctionCompletion::place(int32_t token) {
  const double scale = auction_scale(facts_);
  Best best;
  for (int32_t e = threadIdx.x; e < experts_; e += kThreads) {
    if (loads_[e] >= upper(e) || !may_have(token, e)) continue;
    const int32_t turn = (e - token % experts_ + experts_) % experts_;
    take_better(best, {.value = score(token, e) / scale - prices_[e], .index = turn, .expert = e});
  }
  best = block_best(best);
  if (best.index >= 0) {
    if (threadIdx.x == 0) {
      holder_[token] = best.expert;
      ++loads_[best.expert];
    }
  } else if (!place_by_chain(token)) {
    // No answer exists. Any expert with room keeps the order a permutation and loads in bounds.
    for (int32_t e = threadIdx.x; e < experts_; e += kThreads) {
      if (loads_[e] < upper(e)) take_better(best, {.value = 0, .index = e, .expert = e});
    }
    best = block_best(best);
    if (threadIdx.x == 0) {
      facts_.infeasible = 1;
      holder_[token] = max(best.expert, 0);
      ++loads_[holder_[token]];
    }
  }
  __syncthreads();
}

__device__ bool AuctionCompletion::place_by_chain(int32_t token) {
  for (int32_t e = threadIdx.x; e < experts_; e += kThreads) {
    reached_[e] = may_have(token, e) ? 1 : 0;
  }
  __syncthreads();
  const int32_t taker = find_taker([&](int32_t e) { return loads_[e] < upper(e); });
  if (taker < 0) return false;
  const int32_t giver = move_chain(taker);
  if (threadIdx.x == 0) {
    holder_[token] = giver;
    ++loads_[taker];
  }
  __syncthreads();
  return true;
}

__device__ void AuctionCompletion::fill_lower_bounds() {
  int64_t missing = 0;
  for (int32_t e = threadIdx.x; e < experts_; e += kThreads)
    missing += max(0, lower(e) - loads_[e]);
  missing = block_total(missing) - (tokens_ - facts_.counted);  // padding fills the first of them
  for (; missing > 0; --missing) {
    if (fill_one() || fill_by_chain()) continue;
    if (threadIdx.x == 0) facts_.infeasible = 1;
    break;
  }
  __syncthreads();
}

// Moves the token that loses least from an expert with more than it must have to one with less.
__device__ bool AuctionCompletion::fill_one() {
  Best best;
  for (int32_t e = 0; e < experts_; ++e) {
    if (loads_[e] >= lower(e)) continue;
    for (int32_t t = threadIdx.x; t < tokens_; t += kThreads) {
      const int32_t from = holder_[t];
      if (from < 0 || loads_[from] <= lower(from) || !may_have(t, e)) continue;
      const double gain = static_cast<double>(score(t, e)) - score(t, from);
      take_better(best, {.value = gain, .index = t, .expert = e});
    }
  }
  best = block_best(best);
  if (best.index < 0) return false;
  if (threadIdx.x == 0) {
    --loads_[holder_[best.index]];
    ++loads_[best.expert];
    holder_[best.index] = best.expert;
  }
  __syncthreads();
  return true;
}

__device__ bool AuctionCompletion::fill_by_chain() {
  for (int32_t e = threadIdx.x; e < experts_; e += kThreads) {
    reached_[e] = loads_[e] > lower(e) ? 1 : 0;
  }
  __syncthreads();
  const int32_t taker = find_taker([&](int32_t e) { return loads_[e] < lower(e); });
  if (taker < 0) return false;
  const int32_t giver = move_chain(taker);
  if (threadIdx.x == 0) {
    --loads_[giver];
    ++loads_[taker];
  }
  __syncthreads();
  return true;
}

// Follows tokens from the experts reached in step 1 until one is wanted; -1: none can be reached.
template <typename Wanted>
__device__ int32_t AuctionCompletion::find_taker(Wanted wanted) {
  for (int32_t step = 1;; ++step) {
    for (int32_t e = threadIdx.x; e < experts_; e += kThreads) {
      if (reached_[e] == 0) via_[e] = 0;
    }
    __syncthreads();
    reach_further(step);
    __syncthreads();
    Best taker;
    int further = 0;
    for (int32_t e = threadIdx.x; e < experts_; e += kThreads) {
      if (reached_[e] != 0 || via_[e] == 0) continue;
      reached_[e] = step + 1;
      further = 1;
      if (wanted(e)) take_better(taker, {.value = 0, .index = e, .expert = e});
    }
    taker = block_best(taker);
    if (taker.index >= 0) return taker.index;
    if (__syncthreads_or(further) == 0) return -1;
  }
}

// For each expert not reached yet the token of a newly reached one that moves there at least loss,
// of equal ones the first, packed into via_.
__device__ void AuctionCompletion::reach_further(int32_t step) {
  for (int32_t e = 0; e < experts_; ++e) {
    if (reached_[e] != 0) continue;
    for (int32_t t = threadIdx.x; t < tokens_; t += kThreads) {
      const int32_t from = holder_[t];
      if (from < 0 || reached_[from] != step || !may_have(t, e)) continue;
      const auto gain = static_cast<unsigned long long>(order_code(score(t, e) - score(t, from)));
      atomicMax(&via_[e], gain << 32 | static_cast<uint32_t>(~t));
    }
  }
}

// Moves tokens back along the way to `taker`; returns the expert of step 1 that gives one away.
__device__ int32_t AuctionCompletion::move_chain(int32_t taker) {
  __shared__ int32_t giver;
  if (threadIdx.x == 0) {
    giver = taker;
    while (reached_[giver] > 1) {
      const auto token = static_cast<int32_t>(~static_cast<uint32_t>(via_[giver]));
      const int32_t from = holder_[token];
      holder_[token] = giver;
      giver = from;
    }
  }
  __syncthreads();
  return giver;
}

__global__ void __launch_bounds__(kThreads)
    completion_kernel(CudaProblems problems, CudaAssignments results, AuctionMemory memory) {
  AuctionCompletion(problems, results, memory, blockIdx.x).complete();
}

}  // namespace

void launch_auction_completion(const CudaProblems& problems, const CudaAssignments& results,
                               const AuctionMemory& memory, cudaStream_t stream) {
  completion_kernel<<<problems.problems, kThreads, 0, stream>>>(problems, results, memory);
  check_launch(cudaGetLastError(), "completing the auction");
}

}  // namespace ballast::assignment
