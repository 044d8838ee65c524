// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/_grouped_mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "ballast/experts/expert_block_passes.h"
#include "ballast/experts/expert_mlp_paths.h"
#include "ballast/kernels/gemm.h"
#include "ballast/kernels/row_access.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

bool in_whole_units(const Tensor& stack) {
  const auto is_whole = [&](int64_t numbers) {
    return numbers * stack.element_size() % kernels::kAccessBytes == 0;
  };
  return stack.defined() && stack.scalar_type() == at::kBFloat16 &&
         kernels::is_on_boundary(stack) && is_whole(stack.stride(0)) && is_whole(stack.size(-1));
}

Tensor to_whole_units(const Tensor& x) {
  const Tensor rows = x.contiguous();
  return in_whole_units(rows) ? rows : rows.clone();
}

// The products of each expert's slots with its own matrices, and what surrounds them. Equal blocks
// are one strided product, whose epilogues do that; grouped rows one kernel that reads on the
// device where experts end. Slots are [M, ...].
class ExpertProducts {
 public:
  explicit ExpertProducts(Tensor ends) : ends_(std::move(ends)) {}

  // relu(x up_e^T + bias_e)
  Tensor up(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    if (!is_grouped())
      return flat(kernels::multiply_transposed(by_expert(x, weight), weight, bias,
                                               kernels::Activation::kRelu));
    Tensor active = at::_grouped_mm(x, weight.transpose(1, 2), ends_);
    add_bias_relu(active, ends_, bias);
    return active;
  }

  // active down_e^T + bias_e, as a change whose bias may still have to be added.
  ChangeSoFar down(const Tensor& active, const Tensor& weight, const Tensor& bias) const {
    if (!is_grouped())
      return {{}, flat(kernels::multiply_transposed(by_expert(active, weight), weight, bias))};
    return {{}, at::_grouped_mm(active, weight.transpose(1, 2), ends_), bias};
  }

  // The gradient by up's result before relu; its columns are added to bias_sum.
  Tensor down_backward(const Tensor& dchange, const Tensor& weight, const Tensor& active,
                       const Tensor& bias_sum) const {
    if (!is_grouped())
      return flat(kernels::multiply_weight_masked(by_expert(dchange, weight), weight,
                                                  by_expert(active, weight), bias_sum));
    Tensor dactive = at::_grouped_mm(dchange, weight, ends_);
    take_back_relu_by_expert(dactive, active, ends_, bias_sum);
    return dactive;
  }

  Tensor up_backward(const Tensor& dactive, const Tensor& weight) const {
    return is_grouped() ? at::_grouped_mm(dactive, weight, ends_)
                        : flat(kernels::multiply_weight(by_expert(dactive, weight), weight));
  }

  // sum_e += dy_e^T x_e, or = where gradients are written.
  void matrix_gradient(const Tensor& sum, const Tensor& dy, const Tensor& x,
                       MatrixGradients gradients) const {
    if (!sum.defined()) return;
    if (is_grouped()) {
      if (gradients == MatrixGradients::kWritten) sum.zero_();
      add_to_experts(sum, at::_grouped_mm(dy.t(), x, ends_), ends_);
    } else if (gradients == MatrixGradients::kAdded) {
      kernels::add_outer_products(sum, by_expert(dy, sum), by_expert(x, sum));
    } else {
      kernels::write_outer_products(sum, by_expert(dy, sum), by_expert(x, sum));
    }
  }

 private:
  bool is_grouped() const { return ends_.defined(); }
  // Views by expert, and back.  [M, D] <-> [E, M/E, D]
  static Tensor by_expert(const Tensor& slots, const Tensor& stack) {
    return slots.view({stack.size(0), -1, slots.size(1)});
  }
  static Tensor flat(const Tensor& slots) { return slots.view({-1, slots.size(2)}); }

  const Tensor ends_;  // undefined: equal blocks
};

// Where unequal experts are not grouped, their slots become blocks, with nobody's slots behind.
SlotOrder order_of(const ExpertBlock& block) {
  const auto& [h, rows, row_of_slot, slot_of_row] = block.routed;
  SlotOrder order{row_of_slot.defined() ? row_of_slot.contiguous() : Tensor(), rows.ends};
  if (has_equal_blocks(rows)) return {order.row_of_slot, {}};
  if (!order.ends.defined()) order.ends = ends_of_experts(h, rows.counts);
  const Tensor& up = block.sublayers.front().up.value;
  if (order.row_of_slot.defined() ||
      choose_layout(rows.counts, up.size(1) * up.size(2)) == ExpertLayout::kGroupedRows)
    return order;
  return {padded_slots(order.ends, rows_of_block(rows.counts)), {}};
}

// What is saved: these, then for each sublayer its weights and what it keeps.
enum Saved { kH, kRowOfSlot, kEnds, kEmbeddings, kGates, kChange, kChangeBias, kOfBlock };
enum SavedOfSublayer { kNorm, kUp, kDown, kBefore, kNormed, kMean, kInverse, kActive, kOfSublayer };
enum Sum { kNormSum, kNormBiasSum, kUpSum, kUpBiasSum, kDownSum, kDownBiasSum, kSumsOfSublayer };

struct ExpertBlockFunction : torch::autograd::Function<ExpertBlockFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& h, const ExpertBlock& block) {
    const SlotOrder order = order_of(block);
    const ExpertProducts products(order.ends);
    tensor_list of_sublayers;
    c10::List<Tensor> sums;
    ChangeSoFar so_far;
    for (const ExpertWeights& w : block.sublayers) {
      const auto [normed, mean, inverse] =
          normalize_slots(h, order, so_far, w.norm.value, w.norm_bias.value);
      const Tensor before = so_far.change;  // with what was before it
      const Tensor active = products.up(normed, w.up.value, w.up_bias.value);
      so_far = products.down(active, w.down.value, w.down_bias.value);
      so_far.before = before;
      const tensor_list kept{w.norm.value, w.up.value, w.down.value, before,
                             normed,       mean,       inverse,      active};
      of_sublayers.insert(of_sublayers.end(), kept.begin(), kept.end());
      for (const kernels::Parameter* p :
           {&w.norm, &w.norm_bias, &w.up, &w.up_bias, &w.down, &w.down_bias})
        sums.push_back(p->gradient);
    }
    const auto [y, gates] = gate_slots(h, order, so_far, block.embeddings.value);
    const bool has_gate = block.embeddings.value.defined();
    tensor_list saved{h,
                      order.row_of_slot,
                      order.ends,
                      block.embeddings.value,
                      gates,
                      has_gate ? so_far.change : Tensor(),
                      has_gate ? so_far.bias : Tensor()};
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
    const SlotOrder order{saved[kRowOfSlot], saved[kEnds]};
    const ExpertProducts products(order.ends);
    const Tensor &h = saved[kH], &gates = saved[kGates],
                 dy = to_whole_units(gradients_of_results[0]);
    const auto sublayers = (saved.size() - kOfBlock) / kOfSublayer;
    const auto of_sublayer = [&](size_t i) { return saved.data() + kOfBlock + i * kOfSublayer; };
    // Without a gate and another order the change has the gradient of the result.
    const Tensor& change = gates.defined() ? saved[kChange] : of_sublayer(0)[kNormed];
    const auto [dgated, dscores] =
        gates.defined() || order.row_of_slot.defined()
            ? gate_slots_backward(dy, order,
                                  {of_sublayer(sublayers - 1)[kBefore], change, saved[kChangeBias]},
                                  gates)
            : GateGradient{dy, {}};
    Tensor dchange = dgated;
    for (size_t i = sublayers; i-- > 0;) {
      const Tensor* const kept = of_sublayer(i);
      const Tensor* const sum = sums.data() + i * kSumsOfSublayer;
      const Tensor& active = kept[kActive];
      const Tensor dactive =
          products.down_backward(dchange, kept[kDown], active, sum[kUpBiasSum]);  // [M, F]
      products.matrix_gradient(sum[kDownSum], dchange, active, gradients);
      products.matrix_gradient(sum[kUpSum], dactive, kept[kNormed], gradients);
      const Tensor dnormed = products.up_backward(dactive, kept[kUp]);
      const NormOfSlots norm{dnormed, h, order, kept[kMean], kept[kInverse], kept[kNorm]};
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

bool suits_fused_block(const ExpertBlock& block) {
  const Tensor& h = block.routed.rows;
  if (!h.is_cuda() || h.size(0) == 0 || block.sublayers.empty() || h.size(1) > kWidestSlot ||
      !in_whole_units(h))
    return false;
  // A later sublayer would have to add the bias that a grouped product leaves.
  if (block.sublayers.size() > 1 && !has_equal_blocks(block.routed.rows_of_expert)) return false;
  for (const ExpertWeights& w : block.sublayers) {
    if (!w.form.is_papers()) return false;
    for (const kernels::Parameter* p :
         {&w.norm, &w.norm_bias, &w.up, &w.up_bias, &w.down, &w.down_bias}) {
      if (!in_whole_units(p->value)) return false;
    }
  }
  return !block.embeddings.value.defined() || in_whole_units(block.embeddings.value);
}

Tensor expert_block_fused(const ExpertBlock& block) {
  return ExpertBlockFunction::apply(block.routed.rows, block);
}

}  // namespace ballast::experts
