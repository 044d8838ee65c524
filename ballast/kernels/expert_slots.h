// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace ballast {

// The passes over rows of expert_block, in bf16 on a GPU; the CUDA plugin has them. The M slots are
// sorted by expert, M / E for each. Slot s holds row row_of_slot[s] of [N, D] (int64; negative:
// nobody's; undefined: row s). Rows are contiguous, rows and the distances between experts
// multiples of 16 bytes. Sums over columns are added up in a fixed order.

// Rows and experts that the passes take: D up to kWidestSlot, in units of 16 bytes.
inline constexpr int64_t kWidestSlot = 4096;

// The change that sublayers made so far: before + change, [M, D] each, undefined: 0.
struct ChangeSoFar {
  at::Tensor before, change;
};

struct NormedSlots {
  at::Tensor normed;         // [M, D], zeros where nobody is
  at::Tensor mean, inverse;  // [M] fp32
};
// LayerNorm of x + before + change with each expert's weight and bias [E, D]. Where both changes
// are defined, `change` becomes their sum.  x [N, D]
NormedSlots normalize_slots(const at::Tensor& x, const at::Tensor& row_of_slot,
                            const ChangeSoFar& so_far, const at::Tensor& weight,
                            const at::Tensor& bias);

struct GatedSlots {
  at::Tensor y;      // [N, D]; rows that are in no slot are not written
  at::Tensor gates;  // [M] fp32; undefined without embeddings
};
// x + sigmoid(x . w_e) (before + change); without embeddings [E, D] the gate is 1.
GatedSlots gate_slots(const at::Tensor& x, const at::Tensor& row_of_slot, const ChangeSoFar& so_far,
                      const at::Tensor& embeddings);

struct GateGradient {
  at::Tensor dchange;  // [M, D], zeros where nobody is
  at::Tensor dscores;  // [M] fp32: by x . w_e
};
GateGradient gate_slots_backward(const at::Tensor& dy, const at::Tensor& row_of_slot,
                                 const ChangeSoFar& so_far, const at::Tensor& gates);

// What LayerNorm's gradient needs of the way forward, and the gradient dnormed [M, D] of its
// result.
struct NormOfSlots {
  const at::Tensor &dnormed, &x, &row_of_slot, &mean, &inverse, &weight;
};
// [E, D] each, added to; undefined: not wanted.
struct ColumnSums {
  at::Tensor norm, norm_bias, down_bias, embeddings;
};
// For a later sublayer: dchange [M, D] by the change after it -> by the change before it, which is
// `change`.
at::Tensor norm_backward_at_slots(const NormOfSlots& norm, const at::Tensor& change,
                                  const at::Tensor& dchange, const ColumnSums& sums);

// For the first: all that meets at x, of the residual, the gate and the norm.
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

}  // namespace ballast
