// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/assignment_output_cuda.h"
#include "ballast/assignment/heuristics_cuda.h"
#include "ballast/assignment/launch_check.h"
#include "ballast/assignment/score_reader_cuda.cuh"

namespace ballast::assignment {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// One warp a token.
__global__ void argmax_kernel(CudaProblems problems, CudaAssignments results, ScoreFacts* facts) {
  const int32_t token = blockIdx.x * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (token >= problems.tokens || !is_counted(problems, blockIdx.y, token)) return;
  const ScoreReader score(problems, blockIdx.y, facts[blockIdx.y]);
  unsigned long long best = 0;
  for (int32_t e = lane; e < problems.experts; e += 32) {
    // Without -0, which is equal to 0 but has another code.
    const auto code = static_cast<unsigned long long>(order_code(score(token, e) + 0.0F));
    best = max(best, code << 32 | static_cast<uint32_t>(~e));
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    best = max(best, __shfl_xor_sync(0xffffffffU, best, offset));
  }
  if (lane != 0) return;
  const auto expert = static_cast<int32_t>(~static_cast<uint32_t>(best));
  results.expert_of_token[static_cast<int64_t>(blockIdx.y) * problems.tokens + token] = expert;
  if (score(token, expert) == minus_infinity()) facts[blockIdx.y].infeasible = 1;
}

}  // namespace

size_t greedy_cuda_workspace(const CudaProblems& problems) {
  WorkspaceLayout layout(nullptr);
  output_memory(problems, layout);
  return layout.bytes();
}

void launch_greedy_cuda(const CudaProblems& problems, const CudaAssignments& results,
                        void* workspace, cudaStream_t stream) {
  if (problems.problems == 0) return;
  WorkspaceLayout layout(workspace);
  const OutputMemory memory = output_memory(problems, layout);
  launch_score_facts(problems, memory, stream);
  const size_t prices = static_cast<size_t>(problems.problems) * problems.experts;
  check_launch(cudaMemsetAsync(results.prices, 0, prices * sizeof(double), stream), "greedy");
  if (problems.tokens > 0) {
    const dim3 grid((problems.tokens + kWarps - 1) / kWarps, problems.problems);
    argmax_kernel<<<grid, kThreads, 0, stream>>>(problems, results, memory.facts);
    check_launch(cudaGetLastError(), "greedy");
  }
  launch_assignment_output(problems, results, memory, stream);
}

}  // namespace ballast::assignment
