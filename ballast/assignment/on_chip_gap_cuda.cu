// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/on_chip_solve_cuda.cuh"

namespace ballast::assignment::on_chip {

template const void* kernel_of<32, Wish::kGap, Meeting::kCluster>();
template const void* kernel_of<32, Wish::kGap, Meeting::kDesk>();
template const void* kernel_of<64, Wish::kGap, Meeting::kCluster>();
template const void* kernel_of<64, Wish::kGap, Meeting::kDesk>();
template const void* kernel_of<128, Wish::kGap, Meeting::kCluster>();
template const void* kernel_of<128, Wish::kGap, Meeting::kDesk>();

}  // namespace ballast::assignment::on_chip
