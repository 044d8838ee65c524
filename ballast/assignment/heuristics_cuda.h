// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ballast/assignment/cuda_problem.h"

// The solvers on the device that prove nothing. Each tells how many bytes of device memory it needs
// (UserError: a shape that is not supported), and launches: asynchronous on `stream`, without
// allocation, fit for a CUDA graph, the same bits on every run. REQUIRES: a workspace of so many
// bytes, aligned to 256, of no other launch that may run meanwhile.
namespace ballast::assignment {

// AuctionSolver: the same rounds and bids, and where those give each token an expert and loads
// within their bounds, the same result. What is left is given away in token order.
size_t auction_cuda_workspace(const CudaProblems& problems);
void launch_auction_cuda(const CudaProblems& problems, const CudaAssignments& results,
                         void* workspace, cudaStream_t stream);

// GreedySolver: each token's best expert, of equal ones the first, whatever the bounds; prices 0.
size_t greedy_cuda_workspace(const CudaProblems& problems);
void launch_greedy_cuda(const CudaProblems& problems, const CudaAssignments& results,
                        void* workspace, cudaStream_t stream);

}  // namespace ballast::assignment
