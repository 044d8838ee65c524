// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_row_loops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ballast/experts/lane_sum.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/system/vector_clones.h"

namespace ballast::experts {
namespace {

constexpr int64_t kRowsPerBlock = 64;

template <typename Scalar>
BALLAST_INLINE void add(Scalar* __restrict sum, const Scalar* __restrict terms, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += terms[i];
}

template <typename Scalar>
BALLAST_INLINE void normalize(const NormRows<Scalar>& r) {
  const Scalar* const __restrict weight = r.weight;
  const Scalar* const __restrict bias = r.bias;
  for (int64_t row = 0; row < r.rows; ++row) {
    const Scalar* const __restrict x = r.x + row * r.width;
    Scalar* const __restrict y = r.y + row * r.width;
    const Scalar mean = lane_sum<Scalar>(r.width, [&](int64_t i) { return x[i]; }) / r.width;
    const Scalar variance =
        lane_sum<Scalar>(r.width, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) /
        r.width;
    const Scalar inverse = 1 / std::sqrt(variance + Scalar(kernels::NormForm().epsilon));
    for (int64_t i = 0; i < r.width; ++i) y[i] = (x[i] - mean) * inverse * weight[i] + bias[i];
    r.mean[row] = mean;
    r.inverse[row] = inverse;
  }
}

// One row; `columns` are the block's sums: of the weight's gradient, the bias's, and dy.
template <typename Scalar>
BALLAST_INLINE void normalize_row_backward(const NormGradientRows<Scalar>& r, int64_t row,
                                           Scalar* __restrict columns) {
  const int64_t width = r.width;
  const Scalar* const __restrict x = r.x + row * width;
  const Scalar* const __restrict dnormed = r.dnormed + row * width;
  const Scalar* const __restrict dy = r.dy + row * width;
  const Scalar* const __restrict weight = r.weight;
  Scalar* const __restrict dx = r.dx + row * width;
  const Scalar mean = r.mean[row], inverse = r.inverse[row];
  const Scalar along_ones =
      lane_sum<Scalar>(width, [&](int64_t i) { return dnormed[i] * weight[i]; }) / width;
  const Scalar along_x =
      lane_sum<Scalar>(
          width, [&](int64_t i) { return dnormed[i] * weight[i] * ((x[i] - mean) * inverse); }) /
      width;
  for (int64_t i = 0; i < width; ++i) {
    const Scalar centred = (x[i] - mean) * inverse;
    dx[i] = dy[i] + inverse * (dnormed[i] * weight[i] - along_ones - centred * along_x);
    columns[i] += dnormed[i] * centred;
    columns[width + i] += dnormed[i];
    columns[2 * width + i] += dy[i];
  }
}

template <typename Scalar>
BALLAST_INLINE void normalize_backward(const NormGradientRows<Scalar>& r, Scalar* columns) {
  for (int64_t first = 0; first < r.rows; first += kRowsPerBlock) {
    std::fill_n(columns, 3 * r.width, Scalar(0));
    const int64_t end = std::min(r.rows, first + kRowsPerBlock);
    for (int64_t row = first; row < end; ++row) normalize_row_backward(r, row, columns);
    add(r.dweight, columns, r.width);
    add(r.dbias, columns + r.width, r.width);
    add(r.dy_sum, columns + 2 * r.width, r.width);
  }
}

template <typename Scalar>
BALLAST_INLINE void mask(const MaskRows<Scalar>& r, Scalar* __restrict columns) {
  for (int64_t first = 0; first < r.rows; first += kRowsPerBlock) {
    std::fill_n(columns, r.width, Scalar(0));
    const int64_t end = std::min(r.rows, first + kRowsPerBlock);
    for (int64_t row = first; row < end; ++row) {
      const Scalar* const __restrict active = r.active + row * r.width;
      Scalar* const __restrict dactive = r.dactive + row * r.width;
      for (int64_t i = 0; i < r.width; ++i) {
        const Scalar kept = active[i] <= 0 ? Scalar(0) : dactive[i];
        dactive[i] = kept;
        columns[i] += kept;
      }
    }
    add(r.sum, columns, r.width);
  }
}

template <typename Scalar>
BALLAST_INLINE void gate(const GateRows<Scalar>& r) {
  const Scalar* const __restrict w = r.embedding;
  for (int64_t row = 0; row < r.rows; ++row) {
    const Scalar* const __restrict h = r.h + row * r.width;
    const Scalar* const __restrict stack = r.stack + row * r.width;
    Scalar* const __restrict y = r.y + row * r.width;
    const Scalar score = lane_sum<Scalar>(r.width, [&](int64_t i) { return h[i] * w[i]; });
    const Scalar gate = 1 / (1 + std::exp(-score));
    for (int64_t i = 0; i < r.width; ++i) y[i] = h[i] + gate * (stack[i] - h[i]);
    r.gate[row] = gate;
  }
}

template <typename Scalar>
BALLAST_INLINE void gate_row_backward(const GateGradientRows<Scalar>& r, int64_t row,
                                      Scalar* __restrict columns) {
  const Scalar* const __restrict w = r.embedding;
  const Scalar* const __restrict h = r.h + row * r.width;
  const Scalar* const __restrict stack = r.stack + row * r.width;
  const Scalar* const __restrict dy = r.dy + row * r.width;
  Scalar* const __restrict dh = r.dh + row * r.width;
  Scalar* const __restrict dstack = r.dstack + row * r.width;
  const Scalar gate = r.gate[row];
  const Scalar dscore = gate * (1 - gate) * lane_sum<Scalar>(r.width, [&](int64_t i) {
                          return dy[i] * (stack[i] - h[i]);
                        });
  for (int64_t i = 0; i < r.width; ++i) {
    dstack[i] = gate * dy[i];
    dh[i] = (1 - gate) * dy[i] + dscore * w[i];
    columns[i] += dscore * h[i];
  }
}

template <typename Scalar>
BALLAST_INLINE void gate_backward(const GateGradientRows<Scalar>& r, Scalar* columns) {
  for (int64_t first = 0; first < r.rows; first += kRowsPerBlock) {
    std::fill_n(columns, r.width, Scalar(0));
    const int64_t end = std::min(r.rows, first + kRowsPerBlock);
    for (int64_t row = first; row < end; ++row) gate_row_backward(r, row, columns);
    add(r.dembedding, columns, r.width);
  }
}

// target_clones wants plain functions, so one for each type.
BALLAST_VECTOR_CLONES void clone(const NormRows<float>& r) { normalize(r); }
BALLAST_VECTOR_CLONES void clone(const NormRows<double>& r) { normalize(r); }
BALLAST_VECTOR_CLONES void clone(const NormGradientRows<float>& r, float* columns) {
  normalize_backward(r, columns);
}
BALLAST_VECTOR_CLONES void clone(const NormGradientRows<double>& r, double* columns) {
  normalize_backward(r, columns);
}
BALLAST_VECTOR_CLONES void clone(const MaskRows<float>& r, float* columns) { mask(r, columns); }
BALLAST_VECTOR_CLONES void clone(const MaskRows<double>& r, double* columns) { mask(r, columns); }
BALLAST_VECTOR_CLONES void clone(const GateRows<float>& r) { gate(r); }
BALLAST_VECTOR_CLONES void clone(const GateRows<double>& r) { gate(r); }
BALLAST_VECTOR_CLONES void clone(const GateGradientRows<float>& r, float* columns) {
  gate_backward(r, columns);
}
BALLAST_VECTOR_CLONES void clone(const GateGradientRows<double>& r, double* columns) {
  gate_backward(r, columns);
}

template <typename Rows, typename Scalar>
void clone_with_columns(const Rows& r, int64_t columns, Scalar /*type*/) {
  std::vector<Scalar> sums(columns);
  clone(r, sums.data());
}

}  // namespace

void normalize_rows(const NormRows<float>& r) { clone(r); }
void normalize_rows(const NormRows<double>& r) { clone(r); }
void normalize_rows_backward(const NormGradientRows<float>& r) {
  clone_with_columns(r, 3 * r.width, float{});
}
void normalize_rows_backward(const NormGradientRows<double>& r) {
  clone_with_columns(r, 3 * r.width, double{});
}
void mask_inactive(const MaskRows<float>& r) { clone_with_columns(r, r.width, float{}); }
void mask_inactive(const MaskRows<double>& r) { clone_with_columns(r, r.width, double{}); }
void gate_rows(const GateRows<float>& r) { clone(r); }
void gate_rows(const GateRows<double>& r) { clone(r); }
void gate_rows_backward(const GateGradientRows<float>& r) {
  clone_with_columns(r, r.width, float{});
}
void gate_rows_backward(const GateGradientRows<double>& r) {
  clone_with_columns(r, r.width, double{});
}

}  // namespace ballast::experts
