// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/exact_kernels_cuda.cuh"
#include "ballast/assignment/exact_run_cuda.cuh"

namespace ballast::exact_cuda {
namespace {

template <int C, int L>
__global__ void __launch_bounds__(kThreads, 1) exact_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(16) char memory[];
  run<Map<C, L>>(a, memory);
}

}  // namespace

template <int C, int L>
const void* kernel_of() {
  return reinterpret_cast<const void*>(&exact_kernel<C, L>);
}

template const void* kernel_of<8, 16>();
template const void* kernel_of<8, 32>();

}  // namespace ballast::exact_cuda
