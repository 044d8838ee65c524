// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>
#include <string>

#include "ballast/assignment/exact_cuda.h"
#include "ballast/assignment/exact_kernels_cuda.cuh"
#include "ballast/assignment/launch_check.h"
#include "ballast/assignment/on_chip_cuda.h"

namespace ballast::assignment {
namespace {

using exact_cuda::Arguments;
using exact_cuda::Shape;

// Blocks for one problem: as many as pay for their meetings.
Shape shape_of(const CudaProblems& p, int blocks) {
  if (p.problems < 0 || p.tokens < 0 || p.experts < 1 || p.experts > kExactCudaMaxExperts) {
    throw std::invalid_argument(
        "the exact CUDA solver takes 1 to " + std::to_string(kExactCudaMaxExperts) +
        " experts and no negative sizes; it got " + std::to_string(p.problems) + " problems of " +
        std::to_string(p.tokens) + " tokens and " + std::to_string(p.experts) + " experts");
  }
  const int64_t work = static_cast<int64_t>(p.tokens) * p.experts;
  const int problems = std::max(1, p.problems);
  int64_t team = work <= 24576 ? 1 : std::min<int64_t>((work + 8191) / 8192, blocks);
  team = std::max<int64_t>(1, std::min<int64_t>(team, blocks / std::min(problems, blocks)));
  team = std::max<int64_t>(1, std::min<int64_t>(team, p.tokens));
  Shape shape{};
  shape.tokens = p.tokens;
  shape.experts = p.experts;
  shape.team = static_cast<int>(team);
  shape.teams = static_cast<int>(std::min<int64_t>(problems, blocks / team));
  shape.chunk = static_cast<int>((p.tokens + team - 1) / team);
  shape.region_pairs = static_cast<int>(std::min<int64_t>(
      static_cast<int64_t>(shape.chunk) * p.experts, std::max<int64_t>(16384, (1 << 21) / team)));
  shape.region_pairs = std::max(shape.region_pairs, p.experts);
  shape.table = 64;
  while (shape.table < 2 * p.tokens) shape.table *= 2;
  return shape;
}

// The kernel for a number of experts.
const void* kernel_for(int experts) {
  using namespace exact_cuda;
  if (experts <= 8) return kernel_of<8, 1>();
  if (experts <= 16) return kernel_of<8, 2>();
  if (experts <= 32) return kernel_of<8, 4>();
  if (experts <= 64) return kernel_of<8, 8>();
  if (experts <= 128) return kernel_of<8, 16>();
  if (experts <= 256) return kernel_of<8, 32>();
  if (experts <= 512) return kernel_of<16, 32>();
  return kernel_of<32, 32>();
}

void launch(Arguments arguments, cudaStream_t stream) {
  const void* kernel = kernel_for(arguments.problems.experts);
  check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    arguments.shared_bytes),
               "the exact solver's shared memory");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(arguments.shape.team * arguments.shape.teams);
  config.blockDim = dim3(exact_cuda::kThreads);
  config.dynamicSmemBytes = arguments.shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute together{};
  together.id = cudaLaunchAttributeCooperative;
  together.val.cooperative = 1;
  config.attrs = &together;
  config.numAttrs = 1;
  void* parameters[] = {&arguments};
  check_launch(cudaLaunchKernelExC(&config, kernel, parameters), "the exact solver");
}

// Behind the teams' memory: which problems the on-chip solver has solved, and what it needs itself.
size_t solved_bytes(const CudaProblems& problems) {
  return (sizeof(int32_t) * static_cast<size_t>(problems.problems) + 255) / 256 * 256;
}
size_t on_chip_bytes(const CudaProblems& problems) {
  return fits_on_chip(problems) ? solved_bytes(problems) + on_chip_workspace(problems) : 0;
}

}  // namespace

size_t exact_cuda_workspace(const CudaProblems& problems, const ExactCudaOptions&) {
  const Shape shape = shape_of(problems, current_cuda_device().multiprocessors);
  return exact_cuda::lay_out(shape, nullptr).bytes * shape.teams + on_chip_bytes(problems);
}

void launch_exact_cuda(const CudaProblems& problems, const CudaAssignments& results,
                       const ExactCudaOptions& options, void* workspace, size_t workspace_bytes,
                       cudaStream_t stream) {
  const CudaDevice device = current_cuda_device();
  Arguments arguments{};
  arguments.problems = problems;
  arguments.results = results;
  arguments.gap = options.gap;
  arguments.max_work = options.max_work;
  arguments.shape = shape_of(problems, device.multiprocessors);
  arguments.shared_bytes = device.shared_bytes;
  arguments.workspace = static_cast<char*>(workspace);
  const exact_cuda::Work layout = exact_cuda::lay_out(arguments.shape, nullptr);
  arguments.workspace_stride = layout.bytes;
  const size_t of_teams = layout.bytes * arguments.shape.teams;
  const size_t needed = of_teams + on_chip_bytes(problems);
  if (workspace_bytes < needed) {
    throw std::invalid_argument("the exact CUDA solver: the workspace has " +
                                std::to_string(workspace_bytes) + " bytes, " +
                                std::to_string(needed) + " are needed");
  }
  if (problems.problems == 0) return;
  if (fits_on_chip(problems)) {
    char* memory = arguments.workspace + of_teams;
    auto* solved = reinterpret_cast<int32_t*>(memory);
    launch_on_chip_cuda(problems, results, {.gap = options.gap}, solved,
                        memory + solved_bytes(problems), stream);
    if (options.gap > 0) return;  // it leaves nothing open then
    arguments.solved = solved;
  }
  check_launch(
      cudaMemset2DAsync(workspace, layout.bytes, 0, layout.cleared, arguments.shape.teams, stream),
      "the exact solver's memory");
  launch(arguments, stream);
}

}  // namespace ballast::assignment
