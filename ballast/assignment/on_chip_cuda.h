// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ballast/assignment/cuda_problem.h"

namespace ballast::assignment {

inline constexpr int kOnChipTeam = 128;      // most blocks for one problem
inline constexpr int kOnChipRows = 1024;     // most tokens of one of them
inline constexpr int kOnChipExperts = 128;   // most experts
inline constexpr int kOnChipTokens = 65536;  // most tokens

struct OnChipOptions {
  double gap = 0;  // as in ExactCudaOptions
};

// Whether problems of this shape can be solved with their scores in the shared memory of the
// current device's multiprocessors: up to 128 experts who get the same number of tokens, no
// padding, no forbidden pairs, and not too many tokens.
bool fits_on_chip(const CudaProblems& problems);

// Bytes of device memory that this needs. REQUIRES: fits_on_chip.
size_t on_chip_workspace(const CudaProblems& problems);

// Starts the on-chip solver on `stream` and returns, as launch_exact_cuda does. solved [problems],
// device memory: 1 where the result is final; 0 where scores need more than is done here, and the
// exact solver must begin anew. With a gap allowed all are final: what does not reach it is
// balanced all the same, with the status kNotConverged. REQUIRES: fits_on_chip; `workspace` of at
// least on_chip_workspace bytes, aligned to 256.
void launch_on_chip_cuda(const CudaProblems& problems, const CudaAssignments& results,
                         const OnChipOptions& options, int32_t* solved, void* workspace,
                         cudaStream_t stream);

}  // namespace ballast::assignment
