// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/muon.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "ballast/kernels/find_op.h"

namespace ballast::kernels {

using at::Tensor;

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "muon_momentum_(Tensor(a!) gradient, Tensor(b!) momentum, Tensor offsets, Tensor(c!) "
      "directions, Tensor gradient_scale, float decay) -> ()");
  library.def(
      "muon_move_(Tensor(a!) working, Tensor(b!) master, Tensor offsets, Tensor directions, Tensor "
      "numbers, Tensor gradient_scale, float weight_decay, float rate, float size) -> ()");
}

namespace {

void check(const char* name, const MuonBuffers& b, at::IntArrayRef matrices,
           const Tensor& gradient_scale) {
  for (const Tensor* flat : {&b.working, &b.master, &b.gradient, &b.momentum}) {
    TORCH_CHECK(flat->dim() == 1 && flat->is_contiguous(), name, ": want flat buffers, got ",
                flat->sizes());
  }
  const auto master = b.master.scalar_type();
  TORCH_CHECK(b.working.numel() == b.master.numel() && b.gradient.numel() == b.momentum.numel() &&
                  b.gradient.scalar_type() == b.working.scalar_type() &&
                  b.momentum.scalar_type() == master,
              name, ": want gradients as the working copy, and the momentum as the master");
  TORCH_CHECK(matrices.size() == 3 && b.offsets.sizes() == matrices.slice(0, 1) &&
                  b.offsets.scalar_type() == at::kLong && b.offsets.is_contiguous() &&
                  b.offsets.device() == b.master.device(),
              name, ": want int64 offsets [N] of matrices [N, R, C], got ", b.offsets.sizes(),
              " and ", matrices);
  TORCH_CHECK(gradient_scale.numel() == 1 && gradient_scale.scalar_type() == master &&
                  gradient_scale.device() == b.master.device(),
              name, ": want gradient_scale on the buffers' device in the master's dtype");
}

}  // namespace

Tensor muon_momentum_(const MuonBuffers& buffers, at::IntArrayRef shape,
                      const MuonConstants& constants, const Tensor& gradient_scale) {
  static const auto op = find_op<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                      const Tensor&, double)>("ballast::muon_momentum_");
  const at::NoGradGuard no_grad;
  std::vector<int64_t> matrices = shape.vec();
  matrices.insert(matrices.begin(), buffers.offsets.numel());
  check("muon_momentum_", buffers, matrices, gradient_scale);
  const Tensor directions = at::empty(matrices, buffers.gradient.options());
  op.call(buffers.gradient, buffers.momentum, buffers.offsets, directions, gradient_scale,
          constants.momentum);
  return directions;
}

void muon_move_(const MuonBuffers& buffers, const Tensor& directions,
                const MuonConstants& constants, const Tensor& numbers,
                const Tensor& gradient_scale) {
  static const auto op =
      find_op<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                   const Tensor&, double, double, double)>("ballast::muon_move_");
  const at::NoGradGuard no_grad;
  check("muon_move_", buffers, directions.sizes(), gradient_scale);
  TORCH_CHECK(directions.scalar_type() == buffers.gradient.scalar_type() &&
                  numbers.scalar_type() == at::kDouble && numbers.numel() > 0 &&
                  numbers.device() == buffers.master.device(),
              "muon_move_: want directions as the gradient, and fp64 numbers beside them");
  op.call(buffers.working, buffers.master, buffers.offsets, directions.contiguous(), numbers,
          gradient_scale, constants.weight_decay, constants.rate, constants.size);
}

}  // namespace ballast::kernels
