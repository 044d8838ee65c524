// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "ballast/assignment/cuda_problem.h"
#include "ballast/assignment/solver.h"

namespace ballast::experts {

struct AssignOptions {
  assignment::SolverKind solver = assignment::SolverKind::kExact;
  assignment::LoadBounds bounds = {};  // of every problem; empty: equal loads
  assignment::NonFinite non_finite = assignment::NonFinite::kReject;
  double gap = 0;           // exact on CUDA: as in ExactCudaOptions; on the CPU it is always exact
  int64_t max_work = 0;     // exact on CUDA: as in ExactCudaOptions; 0: until it is optimal
  size_t threads = 1;       // on the CPU
  bool self_check = false;  // check() refuses a result that is not valid; not with greedy
};

// What may come with the scores, on their device.
struct AssignInputs {
  at::Tensor counted = {};       // [T] or [P, T] bool or uint8; undefined: all. 0: padding
  at::Tensor start_prices = {};  // [E] or [P, E] float64; undefined: none
};

// The fields of Assignment, as tensors on the scores' device. Scores without a dimension P give
// results without it.
struct TensorAssignment {
  at::Tensor expert_of_token;   // [P, T] int32
  at::Tensor tokens_by_expert;  // [P, T] int32
  at::Tensor place_of_token;    // [P, T] int32
  at::Tensor loads;             // [P, E] int32
  at::Tensor prices;            // [P, E] float64
  at::Tensor status;            // [P, sizeof(AssignmentStatus)] uint8, always with P
};

// Solves balanced assignment on tensors and keeps the memory for it. One stream at a time.
class Assigner {
 public:
  // UserError: self_check with greedy.
  explicit Assigner(AssignOptions options);
  ~Assigner();
  Assigner(Assigner&&) noexcept;
  Assigner& operator=(Assigner&&) noexcept;

  // `scores`: [T, E], or [P, T, E] for P problems solved together; float32, bfloat16 or float16,
  // any strides. On the CPU errors are thrown here. On CUDA nothing waits for the device: errors in
  // the scores are in `status`, for check(). Also ballast::assign. The first call of a shape must
  // not be within a CUDA graph's capture. UserError: shapes, types or bounds that do not fit.
  TensorAssignment assign(const at::Tensor& scores, const AssignInputs& inputs = {});

  // Waits for the device and reads the status of a result. UserError: a score was refused (names
  // token and expert); every assignment has a forbidden pair; with self_check, the result is not
  // valid.
  void check(const TensorAssignment& result) const;
  // The same for status blocks that are on the host already.
  void check(std::span<const assignment::AssignmentStatus> status) const;

 private:
  TensorAssignment assign_on_cpu(const at::Tensor& scores, const AssignInputs& inputs);
  TensorAssignment assign_on_cuda(const at::Tensor& scores, const AssignInputs& inputs);

  AssignOptions options_;
  std::unique_ptr<assignment::AssignmentSolver> solver_;  // on the CPU
  assignment::Assignment result_;
  at::Tensor workspace_, lower_, upper_;  // on the GPU
};

// UserError: neither float32, bfloat16 nor float16.
assignment::ScoreType score_type_of(const at::Tensor& scores);

// The status block of each problem, as host memory; waits for the device.
std::vector<assignment::AssignmentStatus> read_status(const TensorAssignment& result);

// What the bytes of a status tensor on the CPU mean.
std::vector<assignment::AssignmentStatus> status_blocks(const at::Tensor& bytes);

}  // namespace ballast::experts
