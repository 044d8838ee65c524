// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "ballast/assignment/cuda_problem.h"
#include "ballast/assignment/workspace_layout.h"

namespace ballast::assignment {

struct ScoreFacts;

// What every method on the device begins and ends with. Launches are asynchronous, do not allocate,
// and give the same bits on every run.
struct OutputMemory {
  ScoreFacts* facts = nullptr;      // [problems]
  int32_t token_blocks = 0;         // of each problem
  double* sums = nullptr;           // [problems, token_blocks, 3] of primal, slack and blind
  int32_t* forbidden = nullptr;     // [problems, token_blocks] 1: a forbidden pair is used
  int32_t* counted_load = nullptr;  // [problems, E]
};
// UserError: a shape that is not supported.
OutputMemory output_memory(const CudaProblems& problems, WorkspaceLayout& layout);

// Looks at all scores once: fills memory.facts.
void launch_score_facts(const CudaProblems& problems, const OutputMemory& memory,
                        cudaStream_t stream);

// From the counted tokens' experts and the prices: places padding, counts loads, sorts tokens by
// expert (stable), and writes certificate and status. REQUIRES: facts; experts in range.
void launch_assignment_output(const CudaProblems& problems, const CudaAssignments& results,
                              const OutputMemory& memory, cudaStream_t stream);

}  // namespace ballast::assignment
