// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace ballast::kernels {

// Makes kernels of a graph's small memory sets. A GPU idles for some microseconds before and after
// a memory set, not between kernels, and most products of cuBLAS and all attentions of cuDNN clear
// some counters first. What the graph computes stays the same. REQUIRES: the graph was recorded
// and not yet instantiated.
void make_kernels_of_small_fills(cudaGraph_t graph);

}  // namespace ballast::kernels
