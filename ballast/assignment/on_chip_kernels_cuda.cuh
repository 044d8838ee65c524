// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/assignment/on_chip_state_cuda.cuh"

namespace ballast::assignment::on_chip {

// What a kernel has to reach.
enum class Wish { kExact, kGap };

// The kernel for up to kExperts experts: void(Arguments). A file for each wish, since they take
// long to compile.
template <int kExperts, Wish kWish, Meeting kMeeting>
const void* kernel_of();

}  // namespace ballast::assignment::on_chip
