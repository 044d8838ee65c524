// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ballast/model/device.h"

namespace ballast::cli {

struct KernelSizes {
  int64_t tokens = 0, width = 0, vocabulary = 0, experts = 0;
};

// One of our kernels and the same in libtorch's operations, as someone would write it in PyTorch.
struct KernelPeers {
  std::string name;
  double bytes = 0;  // that must be read and written, each number once in a pass
  std::function<void()> prepare, kernel, plain;  // prepare comes before each of the two, untimed
};

// The two are called in turns, on tensors that stay where they are. Forward and backward where
// there is a gradient.
std::vector<std::function<KernelPeers()>> kernel_peers(const KernelSizes& sizes,
                                                       const model::ComputePlace& place);

}  // namespace ballast::cli
