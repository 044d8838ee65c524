// SPDX-License-Identifier: Apache-2.0
#include <cooperative_groups.h>

#include <algorithm>

#include "ballast/assignment/auction_state_cuda.cuh"
#include "ballast/assignment/block_sum_cuda.cuh"
#include "ballast/assignment/heuristics_cuda.h"
#include "ballast/assignment/launch_check.h"

namespace ballast::assignment {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kBins = 2048;
constexpr int kTile = 32;

AuctionMemory auction_memory(const CudaProblems& problems, WorkspaceLayout& layout) {
  AuctionMemory memory;
  memory.output = output_memory(problems, layout);
  const auto count = static_cast<size_t>(problems.problems);
  const size_t tokens = count * static_cast<size_t>(problems.tokens);
  const size_t experts = count * static_cast<size_t>(problems.experts);
  memory.scores = layout.take<float>(tokens * static_cast<size_t>(problems.experts));
  memory.price = layout.take<float>(tokens);
  memory.high = layout.take<unsigned long long>(tokens);
  memory.holder = layout.take<int32_t>(tokens);
  memory.without = layout.take<int32_t>(kAuctionRounds * count);
  memory.worth_of_next = layout.take<float>(experts);
  memory.least_worth = layout.take<uint32_t>(experts);
  memory.loads = layout.take<int32_t>(experts);
  memory.reached = layout.take<int32_t>(experts);
  memory.via = layout.take<unsigned long long>(experts);
  return memory;
}

// Scores to [E, T], scaled, and everything else to its start.
__global__ void open_kernel(CudaProblems problems, AuctionMemory memory) {
  __shared__ float tile[kTile][kTile + 1];
  const int32_t problem = blockIdx.z, tokens = problems.tokens, experts = problems.experts;
  const ScoreFacts& facts = memory.output.facts[problem];
  const ScoreReader score(problems, problem, facts);
  const float scale = auction_scale(facts);
  const int32_t first_token = blockIdx.x * kTile, first_expert = blockIdx.y * kTile;
  for (int32_t i = threadIdx.y; i < kTile; i += blockDim.y) {
    const int32_t token = first_token + i, expert = first_expert + static_cast<int>(threadIdx.x);
    if (token >= tokens || expert >= experts) continue;
    const bool counted = is_counted(problems, problem, token);
    tile[i][threadIdx.x] = counted ? score(token, expert) * scale : minus_infinity();
  }
  __syncthreads();
  for (int32_t i = threadIdx.y; i < kTile; i += blockDim.y) {
    const int32_t expert = first_expert + i, token = first_token + static_cast<int>(threadIdx.x);
    if (token >= tokens || expert >= experts) continue;
    memory.scores[(static_cast<int64_t>(problem) * experts + expert) * tokens + token] =
        tile[threadIdx.x][i];
  }
  const int32_t token = first_token + static_cast<int>(threadIdx.x);
  if (blockIdx.y == 0 && threadIdx.y == 0 && token < tokens) {
    const int64_t at = static_cast<int64_t>(problem) * tokens + token;
    memory.price[at] = 0;
    memory.high[at] = 0;
    memory.holder[at] = -1;
  }
}

struct Selection {
  int32_t histogram[kBins];
  int32_t of_warp[kWarps];
  int32_t allowed;     // tokens it might bid for
  int32_t bin, above;  // the bin of the wanted rank, and how many codes lie above it
};

// One expert's view of the tokens: codes of what they are worth to it, 0 where it cannot bid.
class ExpertRow {
 public:
  __device__ ExpertRow(const CudaProblems& problems, const AuctionMemory& memory, int32_t row,
                       uint32_t* cache)
      : tokens_(problems.tokens), expert_(row % problems.experts), cache_(cache) {
    const int64_t first = static_cast<int64_t>(row / problems.experts) * tokens_;
    scores_ = memory.scores + static_cast<int64_t>(row) * tokens_;
    price_ = memory.price + first;
    holder_ = memory.holder + first;
    high_ = memory.high + first;
  }

  __device__ int32_t tokens() const { return tokens_; }
  __device__ bool holds(int32_t token) const { return holder_[token] == expert_; }
  __device__ uint32_t look(int32_t token) const {
    const float worth = scores_[token] - price_[token];
    // Without -0, which is equal to 0 but has another code.
    const uint32_t code = worth == minus_infinity() || holds(token) ? 0 : order_code(worth + 0.0F);
    if (cache_ != nullptr) cache_[token] = code;
    return code;
  }
  __device__ uint32_t code(int32_t token) const {
    return cache_ != nullptr ? cache_[token] : look(token);
  }
  __device__ void bid(int32_t token, float amount) const {
    atomicMax(&high_[token], pack_bid(amount, bidder_of(expert_)));
  }

 private:
  int32_t tokens_, expert_;
  const float *scores_, *price_;
  const int32_t* holder_;
  unsigned long long* high_;
  uint32_t* cache_;
};

__device__ void look_at_all(const ExpertRow& row, Selection& s) {
  if (threadIdx.x == 0) s.allowed = 0;
  __syncthreads();
  int32_t allowed = 0;
  for (int32_t t = threadIdx.x; t < row.tokens(); t += kThreads) {
    allowed += row.look(t) != 0 ? 1 : 0;
  }
  allowed = __reduce_add_sync(0xffffffffU, allowed);
  if (threadIdx.x % 32 == 0) atomicAdd(&s.allowed, allowed);
  __syncthreads();
}

// Finds the bin of the `rank`-th largest (from 1) of the codes counted in s.histogram.
__device__ void find_bin(Selection& s, int32_t rank) {
  constexpr int kBinsPerThread = kBins / kThreads;
  const int last = kBins - 1 - static_cast<int>(threadIdx.x) * kBinsPerThread;
  int32_t mine = 0, total = 0;
  for (int i = 0; i < kBinsPerThread; ++i) mine += s.histogram[last - i];
  int32_t above = sum_before(mine, s.of_warp, total);
  for (int i = 0; i < kBinsPerThread; ++i) {
    const int32_t count = s.histogram[last - i];
    if (above < rank && rank <= above + count) {
      s.bin = last - i;
      s.above = above;
    }
    above += count;
  }
  __syncthreads();
}

// The `rank`-th largest code by three digits, and how many are larger. REQUIRES: as many allowed.
__device__ uint32_t select_code(const ExpertRow& row, Selection& s, int32_t rank,
                                int32_t& num_larger) {
  uint32_t code = 0, known = 0;  // digits found so far, and which bits they are
  num_larger = 0;
  for (const int shift : {21, 10, 0}) {
    const uint32_t digit_mask = shift == 0 ? 1023 : kBins - 1;
    for (int i = threadIdx.x; i < kBins; i += kThreads) s.histogram[i] = 0;
    __syncthreads();
    for (int32_t t = threadIdx.x; t < row.tokens(); t += kThreads) {
      const uint32_t other = row.code(t);
      if (other != 0 && (other & known) == code) {
        atomicAdd(&s.histogram[(other >> shift) & digit_mask], 1);
      }
    }
    __syncthreads();
    find_bin(s, rank - num_larger);
    code |= static_cast<uint32_t>(s.bin) << shift;
    known |= digit_mask << shift;
    num_larger += s.above;
    __syncthreads();
  }
  return code;
}

// One expert's bids of one round.
__device__ void bid(const CudaProblems& problems, const AuctionMemory& memory, int32_t index,
                    uint32_t* cache, Selection& s) {
  const ExpertRow row(problems, memory, index, cache);
  const ScoreFacts& facts = memory.output.facts[index / problems.experts];
  const float increment = auction_increment(facts);
  const int32_t most = min(upper_bound_of(problems, index % problems.experts), facts.counted);
  const int32_t held = memory.loads[index];
  if (held > 0 && held == most) return;  // it only keeps what it holds
  look_at_all(row, s);
  const int32_t wanted = min(most - held, s.allowed);
  const int32_t rank = min(wanted + 1, s.allowed);  // of the best token that is not wanted
  __syncthreads();  // all have read what the next expert's row overwrites
  if (rank == 0) return;
  int32_t num_larger = 0;
  const uint32_t next = select_code(row, s, rank, num_larger);
  const float worth_of_next = from_order_code(next);
  if (threadIdx.x == 0) memory.worth_of_next[index] = worth_of_next;
  for (int32_t t = threadIdx.x; t < row.tokens(); t += kThreads) {
    const uint32_t code = row.code(t);
    if (code > next) row.bid(t, from_order_code(code) - worth_of_next + increment);
  }
  // Of tokens that are worth as much as the next one, the first.
  int32_t missing = wanted - num_larger;
  for (int32_t base = 0; base < row.tokens() && missing > 0; base += kThreads) {
    const int32_t t = base + static_cast<int>(threadIdx.x);
    const bool equal = t < row.tokens() && row.code(t) == next;
    int32_t total = 0;
    const int32_t before = sum_before(equal ? 1 : 0, s.of_warp, total);
    if (equal && before < missing) row.bid(t, increment);
    missing -= total;
  }
  __syncthreads();
}

// The highest bid raises the price and takes the token; a holder's next bid is the least one.
__device__ void award(const CudaProblems& problems, const AuctionMemory& memory, int64_t at,
                      int32_t* without) {
  const auto problem = static_cast<int32_t>(at / problems.tokens);
  const auto token = static_cast<int32_t>(at % problems.tokens);
  const unsigned long long high = memory.high[at];
  int32_t holder = memory.holder[at];
  if (high != 0) {
    memory.price[at] += __uint_as_float(static_cast<uint32_t>(high >> 32));
    const auto bidder = static_cast<uint32_t>(high);
    if (bidder != kHolder) {
      int32_t* loads = memory.loads + static_cast<int64_t>(problem) * problems.experts;
      if (holder >= 0) atomicSub(&loads[holder], 1);
      memory.holder[at] = holder = expert_of(bidder);
      atomicAdd(&loads[holder], 1);
    }
  }
  if (holder >= 0) {
    memory.high[at] = pack_bid(auction_increment(memory.output.facts[problem]), kHolder);
  } else if (is_counted(problems, problem, token)) {
    atomicAdd(&without[problem], 1);
  }
}

__global__ void __launch_bounds__(kThreads)
    auction_kernel(CudaProblems problems, AuctionMemory memory, int32_t cached) {
  extern __shared__ uint32_t cache[];
  __shared__ Selection selection;
  const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  const int32_t rows = problems.problems * problems.experts;
  const int64_t tokens = static_cast<int64_t>(problems.problems) * problems.tokens;
  for (int round = 0; round < kAuctionRounds; ++round) {
    int32_t* without = memory.without + round * problems.problems;
    const int32_t* before = round == 0 ? nullptr : without - problems.problems;
    for (int32_t row = blockIdx.x; row < rows; row += gridDim.x) {
      if (before != nullptr && before[row / problems.experts] == 0) continue;
      bid(problems, memory, row, cached != 0 ? cache : nullptr, selection);
    }
    grid.sync();
    for (int64_t at = blockIdx.x * kThreads + threadIdx.x; at < tokens;
         at += static_cast<int64_t>(gridDim.x) * kThreads) {
      if (before != nullptr && before[at / problems.tokens] == 0) continue;
      award(problems, memory, at, without);
    }
    grid.sync();
    bool done = true;
    for (int32_t p = 0; p < problems.problems; ++p) done = done && without[p] == 0;
    if (done) break;
  }
}

void launch_rounds(CudaProblems problems, AuctionMemory memory, cudaStream_t stream) {
  const char* what = "the auction";
  const size_t row = static_cast<size_t>(problems.tokens) * sizeof(uint32_t);
  int device = 0, processors = 0, blocks = 0, most_shared = 0;
  check_launch(cudaGetDevice(&device), what);
  check_launch(
      cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), what);
  const size_t most_cache = most_shared - sizeof(Selection) - 1024;
  int32_t cached = row <= most_cache ? 1 : 0;
  const size_t shared = cached != 0 ? row : 0;
  check_launch(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device), what);
  check_launch(cudaFuncSetAttribute(auction_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(most_cache)),
               what);
  check_launch(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, auction_kernel, kThreads, shared),
      what);
  if (blocks == 0) refuse("the auction does not fit on this GPU");
  const int64_t rows = static_cast<int64_t>(problems.problems) * problems.experts;
  const auto grid = static_cast<unsigned>(std::min<int64_t>(rows, int64_t{blocks} * processors));
  void* arguments[] = {&problems, &memory, &cached};
  check_launch(cudaLaunchCooperativeKernel(auction_kernel, dim3(grid), dim3(kThreads), arguments,
                                           shared, stream),
               what);
}

}  // namespace

size_t auction_cuda_workspace(const CudaProblems& problems) {
  WorkspaceLayout layout(nullptr);
  auction_memory(problems, layout);
  return layout.bytes();
}

void launch_auction_cuda(const CudaProblems& problems, const CudaAssignments& results,
                         void* workspace, cudaStream_t stream) {
  if (problems.problems == 0) return;
  WorkspaceLayout layout(workspace);
  const AuctionMemory memory = auction_memory(problems, layout);
  launch_score_facts(problems, memory.output, stream);
  const size_t experts = static_cast<size_t>(problems.problems) * problems.experts;
  const size_t rounds = kAuctionRounds * static_cast<size_t>(problems.problems);
  check_launch(cudaMemsetAsync(memory.worth_of_next, 0, experts * sizeof(float), stream),
               "the auction");
  check_launch(cudaMemsetAsync(memory.loads, 0, experts * sizeof(int32_t), stream), "the auction");
  check_launch(cudaMemsetAsync(memory.without, 0, rounds * sizeof(int32_t), stream), "the auction");
  if (problems.tokens > 0) {
    const dim3 grid((problems.tokens + kTile - 1) / kTile, (problems.experts + kTile - 1) / kTile,
                    problems.problems);
    open_kernel<<<grid, dim3(kTile, 8), 0, stream>>>(problems, memory);
    check_launch(cudaGetLastError(), "the auction");
    launch_rounds(problems, memory, stream);
  }
  launch_auction_completion(problems, results, memory, stream);
  launch_assignment_output(problems, results, memory.output, stream);
}

}  // namespace ballast::assignment
