// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>

#include "ballast/assignment/assignment_output_cuda.h"
#include "ballast/assignment/block_sum_cuda.cuh"
#include "ballast/assignment/launch_check.h"
#include "ballast/assignment/score_reader_cuda.cuh"

namespace ballast::assignment {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kTokensPerBlock = 64;
constexpr int kSortThreads = 1024;
constexpr size_t kMostShared = 96 * 1024;
constexpr int32_t kMostExperts = kMostShared / 16;  // PricedBounds

__global__ void score_facts_kernel(CudaProblems problems, ScoreFacts* all_facts) {
  ScoreFacts& facts = all_facts[blockIdx.y];
  unsigned long long first_refused = 0, not_finite = 0;
  uint32_t lowest = 0, largest = 0;
  int counted = 0;
  for (int32_t token = blockIdx.x * kWarps + threadIdx.x / 32; token < problems.tokens;
       token += gridDim.x * kWarps) {
    if (!is_counted(problems, blockIdx.y, token)) continue;
    if (threadIdx.x % 32 == 0) ++counted;
    for (int32_t expert = threadIdx.x % 32; expert < problems.experts; expert += 32) {
      const float score = raw_score(problems, blockIdx.y, token, expert);
      if (isfinite(score)) {
        lowest = max(lowest, ~order_code(score));
        largest = max(largest, order_code(score));
      } else if (!forbids(problems, score)) {
        const auto at = static_cast<unsigned long long>(token) * problems.experts + expert;
        first_refused = max(first_refused, ~at);
        ++not_finite;
      }
    }
  }
  lowest = __reduce_max_sync(0xffffffffU, lowest);
  largest = __reduce_max_sync(0xffffffffU, largest);
  if (threadIdx.x % 32 == 0) {
    if (lowest != 0) atomicMax(&facts.lowest, lowest);
    if (largest != 0) atomicMax(&facts.largest, largest);
    if (counted != 0) atomicAdd(&facts.counted, counted);
  }
  if (not_finite != 0) {
    atomicMax(&facts.first_refused, first_refused);
    atomicAdd(&facts.not_finite, not_finite);
  }
}

// Of an expert in a blind spread, as in Certificate::blind.
__device__ double weight_of(const CudaProblems& problems, int32_t expert) {
  return min(upper_bound_of(problems, expert), problems.tokens);
}

// Sums over the block's tokens, always in the same order.
__global__ void certificate_kernel(CudaProblems problems, CudaAssignments results,
                                   OutputMemory memory) {
  __shared__ double primal[kWarps], slack[kWarps], blind[kWarps];
  __shared__ int forbidden;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int32_t problem = blockIdx.y;
  if (threadIdx.x == 0) forbidden = 0;
  __syncthreads();
  const ScoreReader score(problems, problem, memory.facts[problem]);
  const double* prices = results.prices + static_cast<int64_t>(problem) * problems.experts;
  const int32_t* expert_of_token =
      results.expert_of_token + static_cast<int64_t>(problem) * problems.tokens;
  double warp_primal = 0, warp_slack = 0, warp_blind = 0;
  const int32_t begin = blockIdx.x * kTokensPerBlock;
  const int32_t end = min(begin + kTokensPerBlock, problems.tokens);
  for (int32_t token = begin + warp; token < end; token += kWarps) {
    if (!is_counted(problems, problem, token)) continue;
    double best = -INFINITY, weighted = 0, weights = 0;
    for (int32_t e = lane; e < problems.experts; e += 32) {
      const double value = score(token, e), weight = weight_of(problems, e);
      best = fmax(best, value - prices[e]);
      if (value == -INFINITY) continue;
      weighted += weight * value;
      weights += weight;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      best = fmax(best, __shfl_xor_sync(0xffffffffU, best, offset));
      weighted += __shfl_xor_sync(0xffffffffU, weighted, offset);
      weights += __shfl_xor_sync(0xffffffffU, weights, offset);
    }
    if (weights > 0) warp_blind += weighted / weights;
    const int32_t expert = expert_of_token[token];
    const float own = score(token, expert);
    if (own == minus_infinity()) {
      forbidden = 1;
      continue;
    }
    warp_primal += own;
    warp_slack += best - (static_cast<double>(own) - prices[expert]);
  }
  if (lane == 0) {
    primal[warp] = warp_primal;
    slack[warp] = warp_slack;
    blind[warp] = warp_blind;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) {
    primal[0] += primal[w];
    slack[0] += slack[w];
    blind[0] += blind[w];
  }
  const int64_t block = static_cast<int64_t>(problem) * gridDim.x + blockIdx.x;
  memory.sums[3 * block] = primal[0];
  memory.sums[3 * block + 1] = slack[0];
  memory.sums[3 * block + 2] = blind[0];
  memory.forbidden[block] = forbidden;
}

// The same sum on every run: the order of additions is that of the threads.
__device__ double block_sum(double value, double* of_warp) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffffU, value, offset);
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) sum += of_warp[w];
  __syncthreads();
  return sum;
}

// Experts in the order of their prices, the dearest first.
struct PricedBounds {
  double price;
  int32_t lower, upper;
};

__device__ void sort_by_price(const CudaProblems& problems, const double* prices,
                              PricedBounds* sorted) {
  for (int32_t e = threadIdx.x; e < problems.experts; e += blockDim.x) {
    int32_t rank = 0;
    for (int32_t f = 0; f < problems.experts; ++f) {
      rank += prices[f] > prices[e] || (prices[f] == prices[e] && f < e) ? 1 : 0;
    }
    sorted[rank] = {prices[e], lower_bound_of(problems, e), upper_bound_of(problems, e)};
  }
  __syncthreads();
}

// The largest sum of prices over loads that counted tokens can have, as Certifier::value_of_loads.
__device__ double value_of_loads(const PricedBounds* sorted, int32_t experts, int64_t tokens,
                                 int64_t counted) {
  int64_t luxury = tokens;
  for (int32_t i = 0; i < experts; ++i) luxury -= sorted[i].lower;
  double value = 0;
  for (int32_t i = 0; i < experts; ++i) {
    const PricedBounds expert = sorted[i];
    const int64_t required = min(static_cast<int64_t>(expert.lower), counted);
    counted -= required;
    const int64_t room = expert.upper - expert.lower;
    const int64_t extra = min(min(room, counted), luxury);
    counted -= extra;
    luxury -= extra;
    value += expert.price * static_cast<double>(required + extra);
  }
  return value;
}

__device__ void set_code(const CudaProblems& problems, const ScoreFacts& facts,
                         AssignmentStatus& status) {
  if (facts.infeasible != 0) status.code = AssignmentStatus::kInfeasible;
  const bool none_finite = facts.lowest == 0 && facts.not_finite > 0;
  if (problems.non_finite == NonFinite::kLowest && !none_finite) {
    status.replaced = static_cast<int64_t>(facts.not_finite);
  } else if (facts.not_finite != 0) {
    const unsigned long long at = ~facts.first_refused;
    status.code = AssignmentStatus::kNonFinite;
    status.token = static_cast<int32_t>(at / problems.experts);
    status.expert = static_cast<int32_t>(at % problems.experts);
  }
}

// `sorted`: shared memory for one PricedBounds for each expert.
__device__ void write_status(const CudaProblems& problems, const CudaAssignments& results,
                             const OutputMemory& memory, PricedBounds* sorted, double* of_warp) {
  const int32_t problem = blockIdx.x;
  const int64_t first = static_cast<int64_t>(problem) * problems.experts;
  double primal = 0, slack = 0, blind = 0, value = 0;
  int invalid = 0;
  for (int32_t b = threadIdx.x; b < memory.token_blocks; b += blockDim.x) {
    const int64_t block = static_cast<int64_t>(problem) * memory.token_blocks + b;
    primal += memory.sums[3 * block];
    slack += memory.sums[3 * block + 1];
    blind += memory.sums[3 * block + 2];
    if (memory.forbidden[block] != 0) invalid = 1;
  }
  for (int32_t e = threadIdx.x; e < problems.experts; e += blockDim.x) {
    const int32_t load = results.loads[first + e];
    if (load < lower_bound_of(problems, e) || load > upper_bound_of(problems, e)) invalid = 1;
    value += results.prices[first + e] * memory.counted_load[first + e];
  }
  sort_by_price(problems, results.prices + first, sorted);
  primal = block_sum(primal, of_warp);
  slack = block_sum(slack, of_warp);
  blind = block_sum(blind, of_warp);
  value = block_sum(value, of_warp);
  invalid = __syncthreads_or(invalid);
  if (threadIdx.x != 0) return;
  const ScoreFacts& facts = memory.facts[problem];
  AssignmentStatus status;
  status.valid = invalid == 0 ? 1 : 0;
  status.primal = primal;
  status.gap =
      slack + value_of_loads(sorted, problems.experts, problems.tokens, facts.counted) - value;
  status.dual = status.primal + status.gap;
  status.blind = blind;
  set_code(problems, facts, status);
  results.status[problem] = status;
}

// The expert of padding token number `rank`: first what lower bounds lack, in the experts' order,
// then the room up to upper bounds; the last expert where a method has left no room.
__device__ int32_t padding_expert(const CudaProblems& problems, const int32_t* counted_load,
                                  int32_t rank) {
  for (int32_t e = 0; e < problems.experts; ++e) {
    const int32_t lacking = max(0, lower_bound_of(problems, e) - counted_load[e]);
    if (rank < lacking) return e;
    rank -= lacking;
  }
  for (int32_t e = 0; e < problems.experts; ++e) {
    const int32_t filled = max(counted_load[e], lower_bound_of(problems, e));
    const int32_t room = max(0, upper_bound_of(problems, e) - filled);
    if (rank < room) return e;
    rank -= room;
  }
  return problems.experts - 1;
}

__device__ void place_padding(const CudaProblems& problems, const CudaAssignments& results,
                              const int32_t* counted_load, int32_t problem, int32_t* of_warp) {
  int32_t* expert_of_token =
      results.expert_of_token + static_cast<int64_t>(problem) * problems.tokens;
  int32_t rank = 0;
  for (int32_t base = 0; base < problems.tokens; base += blockDim.x) {
    const int32_t token = base + static_cast<int32_t>(threadIdx.x);
    const bool padding = token < problems.tokens && !is_counted(problems, problem, token);
    int32_t total = 0;
    const int32_t before = sum_before(padding ? 1 : 0, of_warp, total);
    if (padding) expert_of_token[token] = padding_expert(problems, counted_load, rank + before);
    rank += total;
  }
  __syncthreads();
}

// A stable counting sort: each warp takes a run of tokens, and `places` [warps, E] holds first how
// many tokens of an expert a warp has, then where its next one goes.
__device__ void sort_by_expert(const CudaProblems& problems, const CudaAssignments& results,
                               int32_t problem, int32_t* places, int32_t* of_warp, int sorters) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int32_t experts = problems.experts, tokens = problems.tokens;
  const int64_t first = static_cast<int64_t>(problem) * tokens;
  const int32_t* expert_of_token = results.expert_of_token + first;
  const int32_t run = ((tokens + sorters - 1) / sorters + 31) / 32 * 32;
  const int32_t begin = min(warp * run, tokens);
  const int32_t end = warp < sorters ? min(begin + run, tokens) : begin;
  for (int32_t i = threadIdx.x; i < sorters * experts; i += blockDim.x) places[i] = 0;
  __syncthreads();
  for (int32_t token = begin + lane; token < end; token += 32) {
    atomicAdd(&places[warp * experts + expert_of_token[token]], 1);
  }
  __syncthreads();
  int32_t done = 0;
  for (int32_t base = 0; base < experts; base += blockDim.x) {
    const int32_t e = base + static_cast<int32_t>(threadIdx.x);
    int32_t load = 0;
    for (int w = 0; w < sorters && e < experts; ++w) load += places[w * experts + e];
    int32_t total = 0;
    int32_t place = done + sum_before(load, of_warp, total);
    done += total;
    if (e >= experts) continue;
    results.loads[static_cast<int64_t>(problem) * experts + e] = load;
    for (int w = 0; w < sorters; ++w) {
      const int32_t count = places[w * experts + e];
      places[w * experts + e] = place;
      place += count;
    }
  }
  __syncthreads();
  for (int32_t base = begin; base < end; base += 32) {
    const int32_t token = base + lane;
    const bool live = token < end;
    const int32_t expert = live ? expert_of_token[token] : -1;
    const unsigned same = __match_any_sync(0xffffffffU, expert);
    const int before = __popc(same & ((1U << lane) - 1));
    int32_t place = 0;
    if (live) place = places[warp * experts + expert] + before;
    __syncwarp();
    if (live && before == 0) places[warp * experts + expert] += __popc(same);
    __syncwarp();
    if (!live) continue;
    results.place_of_token[first + token] = place;
    results.tokens_by_expert[first + place] = token;
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kSortThreads)
    output_kernel(CudaProblems problems, CudaAssignments results, OutputMemory memory,
                  int sorters) {
  extern __shared__ __align__(16) int32_t places[];  // then, as PricedBounds, experts by price
  __shared__ int32_t of_warp[kSortThreads / 32];
  __shared__ double sums_of_warp[kSortThreads / 32];
  const int32_t problem = blockIdx.x, experts = problems.experts;
  const int64_t first = static_cast<int64_t>(problem) * experts;
  int32_t* counted_load = memory.counted_load + first;
  for (int32_t e = threadIdx.x; e < experts; e += blockDim.x) counted_load[e] = 0;
  __syncthreads();
  for (int32_t token = threadIdx.x; token < problems.tokens; token += blockDim.x) {
    if (!is_counted(problems, problem, token)) continue;
    const int64_t at = static_cast<int64_t>(problem) * problems.tokens + token;
    atomicAdd(&counted_load[results.expert_of_token[at]], 1);
  }
  __syncthreads();
  if (problems.counted != nullptr) {
    place_padding(problems, results, counted_load, problem, of_warp);
  }
  sort_by_expert(problems, results, problem, places, of_warp, sorters);
  write_status(problems, results, memory, reinterpret_cast<PricedBounds*>(places), sums_of_warp);
}

}  // namespace

OutputMemory output_memory(const CudaProblems& problems, WorkspaceLayout& layout) {
  if (problems.experts < 1 || problems.experts > kMostExperts || problems.tokens < 0) {
    refuse("scores [" + std::to_string(problems.tokens) + ", " + std::to_string(problems.experts) +
           "] on the GPU: want 1 to " + std::to_string(kMostExperts) + " experts");
  }
  OutputMemory memory;
  const auto count = static_cast<size_t>(problems.problems);
  const auto experts = static_cast<size_t>(problems.experts);
  memory.token_blocks = (problems.tokens + kTokensPerBlock - 1) / kTokensPerBlock;
  memory.facts = layout.take<ScoreFacts>(count);
  memory.sums = layout.take<double>(3 * count * memory.token_blocks);
  memory.forbidden = layout.take<int32_t>(count * memory.token_blocks);
  memory.counted_load = layout.take<int32_t>(count * experts);
  return memory;
}

void launch_score_facts(const CudaProblems& problems, const OutputMemory& memory,
                        cudaStream_t stream) {
  const size_t bytes = static_cast<size_t>(problems.problems) * sizeof(ScoreFacts);
  check_launch(cudaMemsetAsync(memory.facts, 0, bytes, stream), "score facts");
  if (problems.tokens == 0) return;
  const dim3 grid(std::min((problems.tokens + kWarps - 1) / kWarps, 1024), problems.problems);
  score_facts_kernel<<<grid, kThreads, 0, stream>>>(problems, memory.facts);
  check_launch(cudaGetLastError(), "score facts");
}

void launch_assignment_output(const CudaProblems& problems, const CudaAssignments& results,
                              const OutputMemory& memory, cudaStream_t stream) {
  if (memory.token_blocks > 0) {
    const dim3 grid(memory.token_blocks, problems.problems);
    certificate_kernel<<<grid, kThreads, 0, stream>>>(problems, results, memory);
    check_launch(cudaGetLastError(), "certificate");
  }
  const size_t row = static_cast<size_t>(problems.experts) * sizeof(int32_t);
  const auto sorters =
      static_cast<int>(std::clamp<size_t>(kMostShared / row, 1, kSortThreads / 32));
  const size_t shared = std::max(sorters * row, problems.experts * sizeof(PricedBounds));
  check_launch(cudaFuncSetAttribute(output_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared)),
               "sorting tokens by expert");
  output_kernel<<<problems.problems, kSortThreads, shared, stream>>>(problems, results, memory,
                                                                     sorters);
  check_launch(cudaGetLastError(), "sorting tokens by expert");
}

}  // namespace ballast::assignment
