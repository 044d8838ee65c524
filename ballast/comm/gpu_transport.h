// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/comm/world.h"

namespace ballast::comm {

// Where a worker computes.
struct WorkerGpu {
  std::string machine;  // the same text on workers of one machine
  std::string host;     // its name for people
  std::string gpu;      // identity; empty: it computes on the CPU
  std::string trouble;  // why it cannot use NCCL; empty if it can
};

// Whether tensors on GPUs go by NCCL, from what all workers have, in their order. SharedError: they
// should (kNccl) and cannot; says why and what to do.
bool decide_nccl(GpuTransport wish, const std::vector<WorkerGpu>& workers);

}  // namespace ballast::comm
