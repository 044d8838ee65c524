// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/expert_feed_forward.h"

#include <torch/csrc/autograd/custom_function.h>

#include "ballast/kernels/expert_block_fused.h"
#include "ballast/kernels/expert_feed_forward_paths.h"
#include "ballast/kernels/expert_rows.h"

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

enum class Path : int64_t { kThreads, kBatched, kUneven };

Path choose_path(const Tensor& x, const ExpertRows& rows, const ExpertStacks& weights) {
  if (x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble))
    return Path::kThreads;
  return suits_uneven(x, rows, weights) ? Path::kUneven : Path::kBatched;
}

ExpertStacks values_of(const ExpertWeights& w) {
  return {w.norm.value,    w.norm_bias.value, w.up.value,
          w.up_bias.value, w.down.value,      w.down_bias.value};
}

struct ExpertFeedForwardFunction : torch::autograd::Function<ExpertFeedForwardFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const ExpertRows& rows,
                        const ExpertWeights& w, MatrixGradients gradients) {
    const ExpertStacks weights = values_of(w);
    const Path path = choose_path(x, rows, weights);
    const auto counts = path == Path::kUneven ? rows.counts : rows.counts_on_host();
    KeptForBackward kept;
    const Tensor y = path == Path::kThreads ? expert_feed_forward_cpu(x, counts, weights, kept)
                     : path == Path::kBatched
                         ? expert_feed_forward_batched(x, counts, weights, kept)
                         : expert_feed_forward_uneven(x, rows, weights, kept);
    tensor_list saved{x, weights.norm, weights.up, weights.down};
    saved.insert(saved.end(), kept.tensors.begin(), kept.tensors.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["sums"] =
        gradient_sums({w.norm, w.norm_bias, w.up, w.up_bias, w.down, w.down_bias});
    context->saved_data["path"] = static_cast<int64_t>(path);
    context->saved_data["rows"] = counts;
    context->saved_data["tasks"] = kept.tasks;
    context->saved_data["writes"] = gradients == MatrixGradients::kWritten;
    return y;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorVector();
    const auto path = static_cast<Path>(context->saved_data["path"].toInt());
    const auto counts = context->saved_data["rows"].toIntVector();
    const ExpertStacks weights{saved[1], {}, saved[2], {}, saved[3], {}};  // biases have no say
    const ExpertStacks gradient_sums{sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]};
    const KeptForBackward kept{{saved.begin() + 4, saved.end()},
                               context->saved_data["tasks"].toInt()};
    if (context->saved_data["writes"].toBool()) {
      for (const Tensor& sum : {gradient_sums.up, gradient_sums.down}) {
        if (sum.defined()) sum.zero_();
      }
    }
    const Tensor &x = saved[0], dy = gradients[0].contiguous();
    const Tensor dx =
        path == Path::kThreads
            ? expert_feed_forward_backward_cpu(dy, x, counts, weights, gradient_sums, kept)
        : path == Path::kBatched
            ? expert_feed_forward_backward_batched(dy, x, counts, weights, gradient_sums, kept)
            : expert_feed_forward_backward_uneven(dy, x, counts, weights, gradient_sums, kept);
    return {dx, {}, {}, {}};
  }
};

void check_rows(const Tensor& x, const ExpertRows& rows) {
  if (rows.ends.defined()) {
    TORCH_CHECK(rows.ends.dim() == 1 && rows.ends.scalar_type() == at::kInt &&
                    rows.ends.is_contiguous() && rows.ends.device() == x.device(),
                "expert_feed_forward: want int32 ends [E] on ", x.device(), ", got ",
                rows.ends.scalar_type(), " ", rows.ends.sizes(), " on ", rows.ends.device());
  }
  if (!rows.ends.defined() || !rows.counts.empty())
    expert_groups(rows.counts, x.size(0));  // refuses what does not fit
}

}  // namespace

void check_expert_weights(int64_t width, int64_t experts, const ExpertWeights& w) {
  const Tensor& up = w.up.value;
  TORCH_CHECK(up.dim() == 3 && up.size(0) == experts && up.size(2) == width, "want up [", experts,
              ", F, ", width, "] of ", experts, " experts for rows of ", width, ", got ",
              up.sizes());
  const int64_t inner = up.size(1);
  const auto check = [](const char* what, const Tensor& weight, at::IntArrayRef shape) {
    TORCH_CHECK(weight.sizes() == shape, "want ", what, " ", shape, " of experts, got ",
                weight.sizes());
  };
  check("norm", w.norm.value, {experts, width});
  check("norm_bias", w.norm_bias.value, {experts, width});
  check("up_bias", w.up_bias.value, {experts, inner});
  check("down", w.down.value, {experts, width, inner});
  check("down_bias", w.down_bias.value, {experts, width});
}

Tensor expert_feed_forward(const Tensor& x, const ExpertRows& rows, const ExpertWeights& weights,
                           MatrixGradients gradients) {
  TORCH_CHECK(x.dim() == 2, "expert_feed_forward: want x [N, D], got ", x.sizes());
  check_expert_weights(x.size(1), rows.experts(), weights);
  check_rows(x, rows);
  const ExpertSlots slots{rows};
  const std::vector<ExpertWeights> sublayers{weights};
  const ExpertBlock block{slots, sublayers, {}, gradients};
  if (suits_fused_block(x, block)) return expert_block_fused(x.contiguous(), block);
  return ExpertFeedForwardFunction::apply(x.contiguous(), rows, weights, gradients);
}

}  // namespace ballast
