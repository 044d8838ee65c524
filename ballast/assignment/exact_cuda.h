// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ballast/assignment/cuda_problem.h"

namespace ballast::assignment {

inline constexpr int32_t kExactCudaMaxExperts = 1024;

struct ExactCudaOptions {
  // 0: exact. Otherwise the solver may stop at a valid assignment with a relative_gap
  // (certificate.h) of at most this.
  double gap = 0;
  // 0: no limit. Otherwise the most (token, expert) pairs that the repair of one problem looks at,
  // a pair once in each sweep over its window. Where that is not enough the assignment is made
  // valid at hand: the status is kNotConverged, its gap what that cost. A count: always the same.
  int64_t max_work = 0;
};

// Bytes of device memory that solving problems of this shape on the current device needs. Strides
// and pointers do not matter. Throws std::invalid_argument for a shape that is not supported.
size_t exact_cuda_workspace(const CudaProblems& problems, const ExactCudaOptions& options);

// Starts the exact solver on `stream` and returns: no synchronisation, no allocation, and fit for
// capture in a CUDA graph. Results are the same bit for bit on every run on one kind of GPU.
// REQUIRES: `workspace` of at least exact_cuda_workspace bytes, aligned to 256, not shared with
// another launch that may run at the same time; bounds that fit (check_problem).
// Throws std::invalid_argument as above, std::runtime_error where CUDA refuses the launch.
void launch_exact_cuda(const CudaProblems& problems, const CudaAssignments& results,
                       const ExactCudaOptions& options, void* workspace, size_t workspace_bytes,
                       cudaStream_t stream);

}  // namespace ballast::assignment
