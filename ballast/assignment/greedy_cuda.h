// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ballast/assignment/cuda_problem.h"

namespace ballast::assignment {

// GreedySolver on the device: each token's best expert, of equal ones the first, whatever the
// bounds; prices 0. Bytes of device memory it needs; UserError for a shape that is not supported.
size_t greedy_cuda_workspace(const CudaProblems& problems);

// Asynchronous on `stream`, without allocation, fit for a CUDA graph, the same bits on every run.
// REQUIRES: greedy_cuda_workspace bytes aligned to 256, of no other launch that may run meanwhile.
void launch_greedy_cuda(const CudaProblems& problems, const CudaAssignments& results,
                        void* workspace, cudaStream_t stream);

}  // namespace ballast::assignment
