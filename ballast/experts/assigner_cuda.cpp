// SPDX-License-Identifier: Apache-2.0
// ballast::assign for CUDA tensors: hands pointers to the solvers of ballast/assignment.
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <limits>
#include <tuple>

#include "ballast/assignment/exact_cuda.h"
#include "ballast/assignment/heuristics_cuda.h"
#include "ballast/assignment/launch_check.h"
#include "ballast/assignment/solver.h"
#include "ballast/experts/assigner.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;
using kernels::OptionalTensor;

assignment::CudaProblems problems_of(const Tensor& scores) {
  TORCH_CHECK(scores.dim() == 3, "assign: want scores [P, T, E], got ", scores.sizes());
  for (const int64_t size : scores.sizes()) {
    if (size > std::numeric_limits<int32_t>::max()) {
      assignment::refuse(
          "scores that are larger than tokens and experts can be numbered (2^31 - 1)");
    }
  }
  return {.scores = scores.const_data_ptr(),
          .type = score_type_of(scores),
          .problems = static_cast<int32_t>(scores.size(0)),
          .tokens = static_cast<int32_t>(scores.size(1)),
          .experts = static_cast<int32_t>(scores.size(2)),
          .problem_stride = scores.stride(0),
          .token_stride = scores.stride(1),
          .expert_stride = scores.stride(2)};
}

// The memory of an optional input of `size` elements, which the op's caller has brought to shape.
template <typename T>
const T* pointer_of(const OptionalTensor& tensor, const Tensor& scores, int64_t size) {
  if (!tensor) return nullptr;
  TORCH_CHECK(
      tensor->device() == scores.device() && tensor->is_contiguous() && tensor->numel() == size,
      "assign: want a contiguous input of ", size, " elements on ", scores.device(), ", got ",
      tensor->sizes(), " on ", tensor->device());
  return tensor->const_data_ptr<T>();
}

int64_t workspace_bytes(const Tensor& scores, int64_t solver, double gap) {
  const c10::cuda::CUDAGuard guard(scores.device());
  const assignment::CudaProblems problems = problems_of(scores);
  switch (static_cast<assignment::SolverKind>(solver)) {
    case assignment::SolverKind::kExact:
      return static_cast<int64_t>(assignment::exact_cuda_workspace(problems, {.gap = gap}));
    case assignment::SolverKind::kAuction:
      return static_cast<int64_t>(assignment::auction_cuda_workspace(problems));
    case assignment::SolverKind::kGreedy:
      return static_cast<int64_t>(assignment::greedy_cuda_workspace(problems));
    case assignment::SolverKind::kSinkhorn:
      break;
  }
  assignment::refuse(
      "sinkhorn runs on the CPU only: choose exact, auction or greedy for scores on a GPU");
}

Results assign_cuda(const Tensor& scores, const OptionalTensor& counted,
                    const OptionalTensor& start_prices, const OptionalTensor& lower,
                    const OptionalTensor& upper, const Tensor& workspace, int64_t solver,
                    int64_t non_finite, double gap, int64_t max_work) {
  const c10::cuda::CUDAGuard guard(scores.device());
  assignment::CudaProblems problems = problems_of(scores);
  const int64_t count = scores.size(0), tokens = scores.size(1), experts = scores.size(2);
  problems.counted = pointer_of<uint8_t>(counted, scores, count * tokens);
  if (start_prices) {
    TORCH_CHECK(start_prices->device() == scores.device() && start_prices->dim() == 2 &&
                    start_prices->size(0) == count && start_prices->size(1) == experts &&
                    (experts < 2 || start_prices->stride(1) == 1),
                "assign: want start prices [", count, ", ", experts, "] on ", scores.device(),
                ", rows contiguous, got ", start_prices->sizes());
    problems.start_prices = start_prices->const_data_ptr<double>();
    problems.start_stride = start_prices->stride(0);
  }
  problems.lower = pointer_of<int32_t>(lower, scores, experts);
  problems.upper = pointer_of<int32_t>(upper, scores, experts);
  problems.non_finite = static_cast<assignment::NonFinite>(non_finite);
  const int64_t bytes = workspace_bytes(scores, solver, gap);
  TORCH_CHECK(workspace.device() == scores.device() && workspace.is_contiguous() &&
                  static_cast<int64_t>(workspace.nbytes()) >= bytes,
              "assign: want a workspace of ", bytes, " bytes on ", scores.device());

  const auto ints = scores.options().dtype(at::kInt);
  const auto status_size = static_cast<int64_t>(sizeof(assignment::AssignmentStatus));
  const Tensor expert_of_token = at::empty({count, tokens}, ints);
  const Tensor tokens_by_expert = at::empty({count, tokens}, ints);
  const Tensor place_of_token = at::empty({count, tokens}, ints);
  const Tensor loads = at::empty({count, experts}, ints);
  const Tensor prices = at::empty({count, experts}, ints.dtype(at::kDouble));
  const Tensor status = at::empty({count, status_size}, ints.dtype(at::kByte));
  const assignment::CudaAssignments results{
      .expert_of_token = expert_of_token.data_ptr<int32_t>(),
      .tokens_by_expert = tokens_by_expert.data_ptr<int32_t>(),
      .place_of_token = place_of_token.data_ptr<int32_t>(),
      .loads = loads.data_ptr<int32_t>(),
      .prices = prices.data_ptr<double>(),
      .status = reinterpret_cast<assignment::AssignmentStatus*>(status.data_ptr<uint8_t>())};
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  void* memory = workspace.data_ptr();
  if (count > 0) {
    switch (static_cast<assignment::SolverKind>(solver)) {
      case assignment::SolverKind::kExact:
        assignment::launch_exact_cuda(problems, results, {.gap = gap, .max_work = max_work}, memory,
                                      workspace.nbytes(), stream);
        break;
      case assignment::SolverKind::kAuction:
        assignment::launch_auction_cuda(problems, results, memory, stream);
        break;
      default:
        assignment::launch_greedy_cuda(problems, results, memory, stream);
    }
  }
  return {expert_of_token, tokens_by_expert, place_of_token, loads, prices, status};
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) {
  library.impl("assign", assign_cuda);
  library.impl("assign_workspace", workspace_bytes);
}

}  // namespace ballast::experts
