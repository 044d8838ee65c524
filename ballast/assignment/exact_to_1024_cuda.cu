// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/exact_run_cuda.cuh"

namespace ballast::assignment::exact_cuda {

template const void* kernel_of<16, 32>();
template const void* kernel_of<32, 32>();

}  // namespace ballast::assignment::exact_cuda
