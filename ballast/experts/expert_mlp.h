// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ballast/experts/expert_rows.h"
#include "ballast/kernels/activation.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/parameter.h"

namespace ballast::experts {

// What an expert's sublayer is made of. The paper's is the default.
struct ExpertForm {
  kernels::Activation activation = kernels::Activation::kRelu;
  // Each expert norms its rows. False: they come normed, and the sublayer gives what is to be
  // added, without its argument.
  bool norms = true;
  kernels::NormForm norm = {};

  bool is_papers() const {
    return activation == kernels::Activation::kRelu && norms && norm.takes_mean() &&
           norm.epsilon == kernels::NormForm().epsilon;
  }
};

// Stacks of E experts' weights. Biases may be undefined, and norms where experts have none. Experts
// may lie apart (dimension 0 may have any stride); the slice
// of each is contiguous. What lies between them is neither read nor written.
struct ExpertWeights {
  const kernels::Parameter& norm;       // [E, D]
  const kernels::Parameter& norm_bias;  // [E, D]
  const kernels::Parameter& up;         // [E, F, D]; gated activations: [E, 2 F, D]
  const kernels::Parameter& up_bias;    // [E, F], or [E, 2 F]
  const kernels::Parameter& down;       // [E, D, F]
  const kernels::Parameter& down_bias;  // [E, D]
  ExpertForm form = {};
};

// What backward does with the gradients of the experts' matrices: up and down.
enum class MatrixGradients { kAdded, kWritten };  // kWritten: over what is there

// One residual sublayer of every expert e on its own rows:
//   x + act(norm_e(x) up_e^T + up_bias_e) down_e^T + down_bias_e
// or, of experts without norms, act(x up_e^T + up_bias_e) down_e^T + down_bias_e.
// x [N, D] sorted by expert, rows of E experts that sum to N (zeros allowed, and free) -> [N, D].
// On a GPU in bf16 the host never waits; elsewhere it does where only the device knows the rows.
at::Tensor expert_feed_forward(const at::Tensor& x, const ExpertRows& rows,
                               const ExpertWeights& weights,
                               MatrixGradients gradients = MatrixGradients::kAdded);

// h + sigmoid(h . w_e) f_e(h) for each row, where f_e is what the residual sublayers of its expert
// add to it, and w_e the expert's embedding [E, D]. h [N, D] -> [N, D]; gradients to h, the
// sublayers' weights and the embeddings.
// On a GPU in bf16, where experts have equally many slots, rows are moved by the passes that
// compute on them and f_e is never rounded as a difference; else it is the composition of
// permute_rows, expert_feed_forward and gated_residual.
at::Tensor gated_experts(const RoutedRows& routed, const std::vector<ExpertWeights>& sublayers,
                         const kernels::Parameter& expert_embeddings,
                         MatrixGradients gradients = MatrixGradients::kAdded);

}  // namespace ballast::experts
