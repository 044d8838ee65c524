// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/expert_block_fused.h"

#include <torch/csrc/autograd/custom_function.h>

#include "ballast/kernels/expert_slots.h"
#include "ballast/kernels/gemm.h"

namespace ballast {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

bool in_whole_units(const Tensor& stack) {
  constexpr int64_t kUnit = 16;
  return stack.scalar_type() == at::kBFloat16 &&
         reinterpret_cast<uintptr_t>(stack.const_data_ptr()) % kUnit == 0 &&
         stack.stride(0) * stack.element_size() % kUnit == 0 &&
         stack.size(-1) * stack.element_size() % kUnit == 0;
}

Tensor to_whole_units(const Tensor& x) {
  const Tensor rows = x.contiguous();
  return in_whole_units(rows) ? rows : rows.clone();
}

// Views by expert, and back.  [M, D] <-> [E, M/E, D]
Tensor by_expert(const Tensor& rows, int64_t experts) {
  return rows.view({experts, -1, rows.size(1)});
}
Tensor flat(const Tensor& rows) { return rows.view({-1, rows.size(2)}); }

void add_matrix_gradient(const Tensor& sum, const Tensor& dy, const Tensor& x,
                         MatrixGradients gradients) {
  if (!sum.defined()) return;
  gradients == MatrixGradients::kAdded ? add_outer_products(sum, dy, x)
                                       : write_outer_products(sum, dy, x);
}

// What is saved: these, then for each sublayer its weights and what it keeps.
enum Saved { kH, kRowOfSlot, kEmbeddings, kGates, kChange, kOfBlock };
enum SavedOfSublayer { kNorm, kUp, kDown, kBefore, kNormed, kMean, kInverse, kActive, kOfSublayer };
enum Sum { kNormSum, kNormBiasSum, kUpSum, kUpBiasSum, kDownSum, kDownBiasSum, kSumsOfSublayer };

struct ExpertBlockFunction : torch::autograd::Function<ExpertBlockFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& h, const ExpertBlock& block) {
    const Tensor row_of_slot =
        block.slots.row_of_slot.defined() ? block.slots.row_of_slot.contiguous() : Tensor();
    tensor_list of_sublayers;
    c10::List<Tensor> sums;
    ChangeSoFar so_far;
    for (const ExpertWeights& w : block.sublayers) {
      const auto [normed, mean, inverse] =
          normalize_slots(h, row_of_slot, so_far, w.norm.value, w.norm_bias.value);
      so_far.before = so_far.change;  // with what was before it
      const int64_t experts = w.up.value.size(0);
      const Tensor active = multiply_transposed(by_expert(normed, experts), w.up.value,
                                                w.up_bias.value, Activation::kRelu);
      so_far.change = flat(multiply_transposed(active, w.down.value, w.down_bias.value));
      const tensor_list kept{w.norm.value, w.up.value, w.down.value, so_far.before,
                             normed,       mean,       inverse,      active};
      of_sublayers.insert(of_sublayers.end(), kept.begin(), kept.end());
      for (const Parameter* p : {&w.norm, &w.norm_bias, &w.up, &w.up_bias, &w.down, &w.down_bias})
        sums.push_back(p->gradient);
    }
    const auto [y, gates] = gate_slots(h, row_of_slot, so_far, block.embeddings.value);
    tensor_list saved{h, row_of_slot, block.embeddings.value, gates,
                      block.embeddings.value.defined() ? so_far.change : Tensor()};
    saved.insert(saved.end(), of_sublayers.begin(), of_sublayers.end());
    context->save_for_backward(std::move(saved));
    sums.push_back(block.embeddings.gradient);
    context->saved_data["sums"] = sums;
    context->saved_data["gradients"] = static_cast<int64_t>(block.gradients);
    return y;
  }

  static tensor_list backward(AutogradContext* context, const tensor_list& gradients_of_results) {
    const auto saved = context->get_saved_variables();
    const auto sums = context->saved_data["sums"].toTensorVector();
    const auto gradients = static_cast<MatrixGradients>(context->saved_data["gradients"].toInt());
    const Tensor &h = saved[kH], &row_of_slot = saved[kRowOfSlot], &gates = saved[kGates],
                 dy = to_whole_units(gradients_of_results[0]);
    const auto sublayers = (saved.size() - kOfBlock) / kOfSublayer;
    const auto of_sublayer = [&](size_t i) { return saved.data() + kOfBlock + i * kOfSublayer; };
    // Without a gate, and so without another order, the change has the gradient of the result.
    const auto [dgated, dscores] =
        gates.defined()
            ? gate_slots_backward(dy, row_of_slot,
                                  {of_sublayer(sublayers - 1)[kBefore], saved[kChange]}, gates)
            : GateGradient{dy, {}};
    Tensor dchange = dgated;
    for (size_t i = sublayers; i-- > 0;) {
      const Tensor* const kept = of_sublayer(i);
      const Tensor* const sum = sums.data() + i * kSumsOfSublayer;
      const int64_t experts = kept[kUp].size(0);
      const Tensor& active = kept[kActive];
      const Tensor dmade = by_expert(dchange, experts);
      const Tensor dactive =
          multiply_weight_masked(dmade, kept[kDown], active, sum[kUpBiasSum]);  // [E, M/E, F]
      add_matrix_gradient(sum[kDownSum], dmade, active, gradients);
      add_matrix_gradient(sum[kUpSum], dactive, by_expert(kept[kNormed], experts), gradients);
      const Tensor dnormed = flat(multiply_weight(dactive, kept[kUp]));
      const NormOfSlots norm{dnormed, h, row_of_slot, kept[kMean], kept[kInverse], kept[kNorm]};
      ColumnSums columns{sum[kNormSum], sum[kNormBiasSum], sum[kDownBiasSum], {}};
      if (i > 0) {
        dchange = norm_backward_at_slots(norm, kept[kBefore], dchange, columns);
        continue;
      }
      columns.embeddings = sums.back();
      const Tensor later = sublayers > 1 ? dchange : Tensor();
      dchange =
          norm_backward_at_rows(norm, {dy, gates, dscores, saved[kEmbeddings], later}, columns);
    }
    return {dchange, {}};
  }
};

}  // namespace

bool suits_fused_block(const Tensor& h, const ExpertBlock& block) {
  const ExpertSlots& slots = block.slots;
  if (!h.is_cuda() || h.size(0) == 0 || slots.rows_of_expert.counts.empty() ||
      block.sublayers.empty() || h.size(1) > kWidestSlot || !in_whole_units(h))
    return false;
  if (!block.embeddings.value.defined() && slots.row_of_slot.defined()) return false;
  const int64_t count = slots.row_of_slot.defined() ? slots.row_of_slot.size(0) : h.size(0);
  const auto groups = expert_groups(slots.rows_of_expert.counts, count);
  if (groups.size() != 1 || groups.front().experts != slots.rows_of_expert.experts()) return false;
  for (const ExpertWeights& w : block.sublayers) {
    for (const Parameter* p : {&w.norm, &w.norm_bias, &w.up, &w.up_bias, &w.down, &w.down_bias}) {
      if (!in_whole_units(p->value)) return false;
    }
  }
  return !block.embeddings.value.defined() || in_whole_units(block.embeddings.value);
}

Tensor expert_block_fused(const Tensor& h, const ExpertBlock& block) {
  return ExpertBlockFunction::apply(h, block);
}

}  // namespace ballast
