// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "ballast/assignment/cuda_problem.h"

namespace ballast::assignment {

// AuctionSolver on the device: the same rounds and bids, and where those give each token an expert
// and loads within their bounds, the same result. What is left is given away in token order.
// Bytes of device memory it needs; UserError for a shape that is not supported.
size_t auction_cuda_workspace(const CudaProblems& problems);

// Asynchronous on `stream`, without allocation, fit for a CUDA graph, the same bits on every run.
// REQUIRES: auction_cuda_workspace bytes aligned to 256, of no other launch that may run meanwhile.
void launch_auction_cuda(const CudaProblems& problems, const CudaAssignments& results,
                         void* workspace, cudaStream_t stream);

}  // namespace ballast::assignment
