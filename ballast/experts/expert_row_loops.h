// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ballast::experts {

// The experts' passes over rows on the CPU, on plain arrays, for float and double. Columns are
// summed in blocks of rows: that keeps rounding small over thousands of rows.

template <typename Scalar>
struct NormRows {
  int64_t rows, width;
  const Scalar *x, *weight, *bias;
  Scalar *y, *mean, *inverse;  // inverse: 1 / sqrt(variance + epsilon)
};
// y = LayerNorm(x), and its statistics.
void normalize_rows(const NormRows<float>& r);
void normalize_rows(const NormRows<double>& r);

template <typename Scalar>
struct NormGradientRows {
  int64_t rows, width;
  const Scalar *x, *mean, *inverse, *weight;
  const Scalar *dnormed, *dy;
  Scalar* dx;
  Scalar *dweight, *dbias, *dy_sum;  // [width]: added to
};
// dx = dy + the gradient of LayerNorm by x; adds up the columns for the weights, and those of dy.
void normalize_rows_backward(const NormGradientRows<float>& r);
void normalize_rows_backward(const NormGradientRows<double>& r);

template <typename Scalar>
struct MaskRows {
  int64_t rows, width;
  const Scalar* active;
  Scalar* dactive;
  Scalar* sum;  // [width]: added to
};
// dactive = 0 where a unit was not active; adds up the columns.
void mask_inactive(const MaskRows<float>& r);
void mask_inactive(const MaskRows<double>& r);

template <typename Scalar>
struct GateRows {
  int64_t rows, width;
  const Scalar *h, *stack, *embedding;
  Scalar *y, *gate;
};
// gate = sigmoid(h . embedding), y = h + gate (stack - h).
void gate_rows(const GateRows<float>& r);
void gate_rows(const GateRows<double>& r);

template <typename Scalar>
struct GateGradientRows {
  int64_t rows, width;
  const Scalar *h, *stack, *embedding, *gate, *dy;
  Scalar *dh, *dstack;
  Scalar* dembedding;  // [width]: added to
};
void gate_rows_backward(const GateGradientRows<float>& r);
void gate_rows_backward(const GateGradientRows<double>& r);

}  // namespace ballast::experts
