// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/exact_state_cuda.cuh"

namespace ballast::assignment::exact_cuda {

constexpr int kThreads = 512;  // of a block

// The kernel that reads rows by Map<C, L>: void(Arguments). One file for every two, since they
// take long to compile.
template <int C, int L>
const void* kernel_of();

}  // namespace ballast::assignment::exact_cuda
