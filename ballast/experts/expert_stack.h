// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/experts/expert_mlp.h"
#include "ballast/kernels/parameter.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::experts {

struct ExpertShape {
  int64_t width = 0, hidden = 0, sublayers = 0;  // D, F, residual blocks
  int64_t first = 0, count = 0;                  // the experts that live here
  double down_deviation = 0;                     // of fresh last projections; 0: they are zero
  ExpertForm form = {};
  bool biases = true;  // of the two matrices
};

// The experts of one layer that live on this worker. Each is a stack of residual blocks
// x + down act(up norm(x)); fresh ones whose last projections are zero are the identity. Of experts
// without norms it is one block, without the residual: see ExpertForm.
class ExpertStack {
 public:
  // Parameters are called NAME.expert.17.sublayer.0.up.weight, with the expert's global number.
  ExpertStack(const ExpertShape& shape, const std::string& name, parameters::ParameterTable& table);

  // Each row through its expert, and back to where it stands.  [N, D] -> [N, D]
  at::Tensor forward(const RoutedRows& routed,
                     MatrixGradients gradients = MatrixGradients::kAdded) const;
  // h + sigmoid(h . w_e) f_e(h), where forward() gives h + f_e(h): see gated_experts.
  at::Tensor gated(const RoutedRows& routed, const kernels::Parameter& expert_embeddings,
                   MatrixGradients gradients = MatrixGradients::kAdded) const;

 private:
  std::vector<ExpertWeights> sublayers_;
};

}  // namespace ballast::experts
