// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::kernels {

// Matrices [R, C] that lie in flat buffers, each in one piece.
struct MuonBuffers {
  at::Tensor working;   // [W]: what the model computes with; may be `master` itself
  at::Tensor master;    // [W] fp32 or fp64
  at::Tensor gradient;  // [G], dtype of working
  at::Tensor momentum;  // [G], dtype of master
  at::Tensor offsets;   // [N] int64 beside them: where each matrix begins in all of these
};

struct MuonConstants {
  double momentum = 0;      // decay a step
  double weight_decay = 0;  // decoupled: master -= rate * weight_decay * master
  double rate = 1;          // factor of the learning rate
  double size = 1;          // by which directions are multiplied before they are subtracted
};

// m = momentum * m + (1 - momentum) * g with g = gradient * gradient_scale, and where Nesterov
// looks: momentum * m + (1 - momentum) * g, in the gradient's dtype. Leaves gradients of zeros.
// `gradient_scale`, a scalar in the master's dtype, is on the buffers' device; where it is not
// finite the momentum stays and the result is zeros. Registered as ballast::muon_momentum_.
// -> [N, R, C]
at::Tensor muon_momentum_(const MuonBuffers& buffers, at::IntArrayRef shape,
                          const MuonConstants& constants, const at::Tensor& gradient_scale);

// Decays the matrices and moves them against `directions` [N, R, C], in the gradient's dtype:
// master, and working copy. `numbers`, fp64 on the buffers' device, starts with the learning rate.
// Where gradient_scale is not finite nothing moves. Registered as ballast::muon_move_.
void muon_move_(const MuonBuffers& buffers, const at::Tensor& directions,
                const MuonConstants& constants, const at::Tensor& numbers,
                const at::Tensor& gradient_scale);

}  // namespace ballast::kernels
