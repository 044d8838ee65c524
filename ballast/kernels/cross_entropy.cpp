// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>

#include "ballast/kernels/find_op.h"
#include "ballast/kernels/gemm.h"
#include "ballast/kernels/rows_alone.h"
#include "ballast/kernels/rows_alone_paths.h"

namespace ballast::kernels {

using at::Tensor;

namespace {

at::ScalarType dtype_of_losses(const Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

// Not differentiable through autograd: it gives its own gradient.
TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.def(
      "softmax_cross_entropy_(Tensor(a!) logits, Tensor targets, float scale, Tensor(b!) losses) "
      "-> ()");
}

void softmax_cross_entropy_(Tensor& logits, const Tensor& targets, double scale,
                            const Tensor& losses) {
  static const auto op = find_op<void(Tensor&, const Tensor&, double, const Tensor&)>(
      "ballast::softmax_cross_entropy_");
  TORCH_CHECK(logits.dim() == 2 && logits.is_contiguous() && targets.dim() == 1 &&
                  targets.size(0) == logits.size(0) && targets.scalar_type() == at::kLong &&
                  targets.is_contiguous(),
              "softmax_cross_entropy_: want contiguous logits [C, V] and int64 targets [C], got ",
              logits.sizes(), " and ", targets.sizes());
  TORCH_CHECK(losses.sizes() == targets.sizes() && losses.is_contiguous() &&
                  losses.scalar_type() == dtype_of_losses(logits),
              "softmax_cross_entropy_: want losses [C] of ", dtype_of_losses(logits), ", got ",
              losses.sizes(), " of ", losses.scalar_type());
  op.call(logits, targets, scale, losses);
}

int64_t rows_of_logits(at::Device device, int64_t tokens, int64_t vocabulary) {
  if (device.is_cpu())
    return std::clamp<int64_t>((int64_t{1} << 19) / vocabulary / 64 * 64, 64, 8192);
  const int64_t most = std::max<int64_t>(64, (int64_t{1} << 29) / vocabulary / 64 * 64);
  const int64_t chunks = std::max<int64_t>(1, (tokens + most - 1) / most);
  return std::min(most, (tokens + chunks * 64 - 1) / (chunks * 64) * 64);
}

namespace {

Tensor make_losses(const Tensor& hidden, const Tensor& embedding, const Tensor& targets) {
  TORCH_CHECK(hidden.dim() == 2 && embedding.dim() == 2 && hidden.size(1) == embedding.size(1) &&
                  targets.dim() == 1 && targets.size(0) == hidden.size(0),
              "next_token_losses: want hidden [T, D], embedding [V, D], targets [T], got ",
              hidden.sizes(), ", ", embedding.sizes(), ", ", targets.sizes());
  return at::empty({hidden.size(0)}, hidden.options().dtype(dtype_of_losses(hidden)));
}

// Calls work(part) for each chunk, where part(x) are its rows of x.
template <typename Work>
void for_each_chunk(const Tensor& hidden, const Tensor& embedding, const Work& work) {
  const int64_t tokens = hidden.size(0);
  const int64_t chunk = rows_of_logits(hidden.device(), tokens, embedding.size(0));
  for (int64_t first = 0; first < tokens; first += chunk) {
    const int64_t count = std::min(chunk, tokens - first);
    work([&](const Tensor& x) { return x.narrow(0, first, count); });
  }
}

}  // namespace

Tensor cap_logits(const Tensor& logits, double cap) {
  if (RowsAlone::hold_for(logits)) return cap_rows_alone(logits, cap);
  return (logits / cap).tanh_().mul_(cap);
}

void cap_gradient_(Tensor& gradient, const Tensor& capped, double cap) {
  gradient.mul_(1 - (capped / cap).square_());
}

Tensor next_token_losses(const Tensor& hidden, const Tensor& embedding, const Tensor& targets,
                         double cap) {
  const at::NoGradGuard no_grad;
  const Tensor losses = make_losses(hidden, embedding, targets);
  for_each_chunk(hidden, embedding, [&](const auto& part) {
    Tensor logits = multiply_transposed(part(hidden), embedding, {});  // [C, V]
    if (cap > 0) logits = cap_logits(logits, cap);
    softmax_cross_entropy_(logits, part(targets), 0.0, part(losses));
  });
  return losses;
}

LossAndGradient next_token_losses_and_gradient(const Tensor& hidden_on_graph,
                                               const Parameter& embedding, const Tensor& targets,
                                               double scale, double cap) {
  const at::NoGradGuard no_grad;
  const Tensor hidden = hidden_on_graph.detach();
  const Tensor losses = make_losses(hidden, embedding.value, targets);
  const Tensor gradient = at::empty_like(hidden);
  for_each_chunk(hidden, embedding.value, [&](const auto& part) {
    const Tensor rows = part(hidden);
    Tensor logits = multiply_transposed(rows, embedding.value, {});  // [C, V]
    if (cap > 0) logits = cap_logits(logits, cap);
    const Tensor capped = cap > 0 ? logits.clone() : Tensor();
    softmax_cross_entropy_(logits, part(targets), scale, part(losses));
    if (cap > 0) cap_gradient_(logits, capped, cap);
    multiply_weight_out(part(gradient), logits, embedding.value);
    if (embedding.gradient.defined())
      sum_outer_products({embedding.gradient, embedding.is_unwritten}, logits, rows);
  });
  return {losses, gradient};
}

}  // namespace ballast::kernels
