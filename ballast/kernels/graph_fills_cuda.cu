// SPDX-License-Identifier: Apache-2.0
#include <c10/cuda/CUDAException.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ballast/kernels/graph_fills_cuda.h"

namespace ballast::kernels {
namespace {

constexpr int kThreads = 256;
constexpr uint64_t kMostBytes = 1 << 20;  // of larger ones the idle moments are the least part

// A memory set of one row: `word` again and again.
struct Fill {
  uint8_t* first;
  uint64_t bytes;
  uint32_t word;
};

__global__ void __launch_bounds__(kThreads) fill_kernel(Fill fill) {
  const uint64_t thread = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const uint64_t packs =
      reinterpret_cast<uintptr_t>(fill.first) % sizeof(uint4) == 0 ? fill.bytes / sizeof(uint4) : 0;
  if (thread < packs)
    reinterpret_cast<uint4*>(fill.first)[thread] =
        make_uint4(fill.word, fill.word, fill.word, fill.word);
  for (uint64_t i = packs * sizeof(uint4) + thread; i < fill.bytes;
       i += uint64_t{gridDim.x} * kThreads)
    fill.first[i] = static_cast<uint8_t>(fill.word >> (i % sizeof(uint32_t) * 8));
}

std::optional<Fill> small_fill(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
  if (type != cudaGraphNodeTypeMemset) return std::nullopt;
  cudaMemsetParams set{};
  C10_CUDA_CHECK(cudaGraphMemsetNodeGetParams(node, &set));
  const uint64_t row = uint64_t{set.width} * set.elementSize;
  if ((set.height > 1 && set.pitch != row) || row * set.height > kMostBytes) return std::nullopt;
  const uint32_t word = set.elementSize == 1   ? (set.value & 0xffU) * 0x01010101U
                        : set.elementSize == 2 ? (set.value & 0xffffU) * 0x00010001U
                                               : set.value;
  return Fill{static_cast<uint8_t*>(set.dst), row * set.height, word};
}

// Nodes beside a node, with what the edges to them say.
struct Beside {
  std::vector<cudaGraphNode_t> nodes;
  std::vector<cudaGraphEdgeData> edges;
};

template <typename Get>
Beside beside(cudaGraphNode_t node, Get get) {
  size_t count = 0;
  C10_CUDA_CHECK(get(node, nullptr, nullptr, &count));
  Beside found{std::vector<cudaGraphNode_t>(count), std::vector<cudaGraphEdgeData>(count)};
  if (count > 0) C10_CUDA_CHECK(get(node, found.nodes.data(), found.edges.data(), &count));
  return found;
}

void make_kernel(cudaGraph_t graph, cudaGraphNode_t node, Fill fill) {
  const Beside before = beside(node, cudaGraphNodeGetDependencies);
  const Beside after = beside(node, cudaGraphNodeGetDependentNodes);
  C10_CUDA_CHECK(cudaGraphDestroyNode(node));
  void* arguments[] = {&fill};
  cudaGraphNodeParams kernel{};
  kernel.type = cudaGraphNodeTypeKernel;
  kernel.kernel.func = reinterpret_cast<void*>(fill_kernel);
  constexpr uint64_t kBytesOfBlock = kThreads * sizeof(uint4);
  kernel.kernel.gridDim =
      dim3(static_cast<unsigned>((fill.bytes + kBytesOfBlock - 1) / kBytesOfBlock));
  kernel.kernel.blockDim = dim3(kThreads);
  kernel.kernel.kernelParams = arguments;
  cudaGraphNode_t made = nullptr;
  C10_CUDA_CHECK(cudaGraphAddNode(&made, graph, before.nodes.data(), before.edges.data(),
                                  before.nodes.size(), &kernel));
  const std::vector<cudaGraphNode_t> from(after.nodes.size(), made);
  C10_CUDA_CHECK(cudaGraphAddDependencies(graph, from.data(), after.nodes.data(),
                                          after.edges.data(), from.size()));
}

}  // namespace

void make_kernels_of_small_fills(cudaGraph_t graph) {
  size_t count = 0;
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  C10_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (const cudaGraphNode_t node : nodes) {
    const std::optional<Fill> fill = small_fill(node);
    if (fill && fill->bytes > 0) make_kernel(graph, node, *fill);
  }
}

}  // namespace ballast::kernels
