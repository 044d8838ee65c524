// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/exact_run_cuda.cuh"

namespace ballast::assignment::exact_cuda {

template const void* kernel_of<8, 16>();
template const void* kernel_of<8, 32>();

}  // namespace ballast::assignment::exact_cuda
