// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast::experts {

// The passes over rows of expert_mlp_fused.cpp, in bf16 on a GPU; the CUDA plugin has them. Rows
// are contiguous, rows and the distances between experts multiples of 16 bytes. Sums over columns
// are added up in a fixed order. The host never waits.

// The largest D that the passes take. D is a multiple of 16 bytes.
inline constexpr int64_t kWidestSlot = 4096;

// M slots, sorted by expert, of the rows [N, D].
struct SlotOrder {
  at::Tensor row_of_slot;  // [M] int64, negative: nobody's; undefined: slot s holds row s
  at::Tensor ends;         // [E] int32, where each expert's slots end; undefined: M / E for each
};

// The change that sublayers made so far: before + change + bias_e, [M, D], [M, D] and [E, D],
// undefined: 0.
struct ChangeSoFar {
  at::Tensor before, change, bias = {};
};

struct NormedSlots {
  at::Tensor normed;         // [M, D], zeros where nobody is
  at::Tensor mean, inverse;  // [M] fp32
};
// LayerNorm of x + before + change with each expert's weight and bias [E, D]. Where both changes
// are defined, `change` becomes their sum.  x [N, D]. REQUIRES: so_far has no bias.
NormedSlots normalize_slots(const at::Tensor& x, const SlotOrder& order, const ChangeSoFar& so_far,
                            const at::Tensor& weight, const at::Tensor& bias);

struct GatedSlots {
  at::Tensor y;      // [N, D]; rows that are in no slot are not written
  at::Tensor gates;  // [M] fp32; undefined without embeddings
};
// x + sigmoid(x . w_e) (change so far); without embeddings [E, D] the gate is 1.
GatedSlots gate_slots(const at::Tensor& x, const SlotOrder& order, const ChangeSoFar& so_far,
                      const at::Tensor& embeddings);

struct GateGradient {
  at::Tensor dchange;  // [M, D], zeros where nobody is
  at::Tensor dscores;  // [M] fp32: by x . w_e; undefined without gates
};
GateGradient gate_slots_backward(const at::Tensor& dy, const SlotOrder& order,
                                 const ChangeSoFar& so_far, const at::Tensor& gates);

// What LayerNorm's gradient needs: what forward kept, and dnormed [M, D], the gradient by its
// result.
struct NormOfSlots {
  const at::Tensor &dnormed, &x;
  const SlotOrder& order;
  const at::Tensor &mean, &inverse, &weight;
};
// [E, D] each, added to; undefined: not wanted.
struct ColumnSums {
  at::Tensor norm, norm_bias, down_bias, embeddings;
};
// For a later sublayer. dchange [M, D] is the gradient by the change after it. Returns that by the
// change before it, which is `change`.
at::Tensor norm_backward_at_slots(const NormOfSlots& norm, const at::Tensor& change,
                                  const at::Tensor& dchange, const ColumnSums& sums);

// For the first sublayer: the gradients that meet at x, those of the residual, the gate and the
// norm.
struct GradientAtRows {
  const at::Tensor& dy;                            // [N, D]
  const at::Tensor &gates, &dscores, &embeddings;  // undefined: there is no gate
  const at::Tensor& dchange;  // by the change after it; undefined: gates times dy
};
// (1 - gate) dy + dscore w_e + dchange + the gradient of LayerNorm.  -> [N, D], as gate_slots
at::Tensor norm_backward_at_rows(const NormOfSlots& norm, const GradientAtRows& meeting,
                                 const ColumnSums& sums);

// What the plugin's ballast::expert_norm_backward takes; undefined where there is none.
struct NormBackwardInputs {
  enum Input {
    kX,
    kRowOfSlot,
    kEnds,
    kMean,
    kInverse,
    kWeight,
    kChange,
    kDchange,
    kDy,
    kGates,
    kDscores,
    kEmbeddings
  };
};

// What follows is for grouped rows, whose products do not add the bias or take relu themselves.

// Where experts end that have so many rows each, on the device of `rows`.  -> [E] int32
at::Tensor ends_of_experts(const at::Tensor& rows, at::IntArrayRef rows_of_expert);
// Slots of such experts in blocks of `block` each: which row stands where.  -> [E block] int64
at::Tensor padded_slots(const at::Tensor& ends, int64_t block);
// y = relu(y + bias_e).  y [M, F], bias [E, F]
void add_bias_relu(const at::Tensor& y, const at::Tensor& ends, const at::Tensor& bias);
// dactive = 0 where a unit was not active; sum_e += its columns.  [M, F], sum [E, F] or undefined
void take_back_relu_by_expert(const at::Tensor& dactive, const at::Tensor& active,
                              const at::Tensor& ends, const at::Tensor& sum);
// sum_e += terms_e for the experts that have slots.  [E, ...] both, terms contiguous
void add_to_experts(const at::Tensor& sum, const at::Tensor& terms, const at::Tensor& ends);

}  // namespace ballast::experts
