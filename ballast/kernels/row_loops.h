// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ballast::kernels {

// What is done with rows one by one (rows_alone.h), on plain arrays and the calling thread. The
// bits of a result depend on its row and its place there alone.

template <typename Scalar>
struct NormedRow {
  int64_t width;
  const Scalar* x;
  const Scalar* change;         // added to x before; or null
  const Scalar *weight, *bias;  // [width]; the bias may be null
  bool takes_mean;
  double epsilon;
  Scalar *sum, *normed;  // sum: x + change; not written without a change
};
void norm_row(const NormedRow<float>& r);
void norm_row(const NormedRow<double>& r);

// y[i] = x[i] sigmoid(x[i]) other[i]
template <typename Scalar>
struct GatedRow {
  int64_t width;
  const Scalar *x, *other;
  Scalar* y;
};
void gate_row(const GatedRow<float>& r);
void gate_row(const GatedRow<double>& r);

// y = gelu(x), by the error function or its approximation by tanh.
enum class GeluForm { kErf, kTanh };
template <typename Scalar>
struct GeluRow {
  int64_t width;
  const Scalar* x;
  GeluForm form;
  Scalar* y;
};
void gelu_row(const GeluRow<float>& r);
void gelu_row(const GeluRow<double>& r);

// Numbers i and i + half of a head, turned by an angle.
template <typename Scalar>
struct TurnedRow {
  int64_t half;
  const Scalar *x, *cosines, *sines;  // [2 half], [half], [half]
  Scalar* y;                          // may be x
};
void turn_row(const TurnedRow<float>& r);
void turn_row(const TurnedRow<double>& r);

// One head of queries of a token, which sees `seen` keys and values, rows `stride` apart.
template <typename Scalar>
struct SeenRow {
  int64_t width, seen, stride;
  const Scalar *weights, *values;  // weights [seen]
  Scalar* mixed;                   // [width]
};
// mixed = the sum of weights[i] values[i].
void mix_values(const SeenRow<float>& r);
void mix_values(const SeenRow<double>& r);

// x <- exp(x scale - m) / sum of these, where m is the largest x scale.
void softmax_row(float* x, int64_t n, float scale);
void softmax_row(double* x, int64_t n, double scale);

}  // namespace ballast::kernels
