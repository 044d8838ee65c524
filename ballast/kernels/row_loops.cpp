// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/row_loops.h"

#include <algorithm>
#include <cmath>

#include "ballast/kernels/lanes.h"
#include "ballast/kernels/vector_math.h"
#include "ballast/system/vector_clones.h"

namespace ballast::kernels {
namespace {

// work(place, count) for all lanes of a row; the last may be fewer than kLanes.
template <typename Work>
BALLAST_INLINE void for_lanes(int64_t width, const Work& work) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) work(i, kLanes);
  if (i < width) work(i, width - i);
}

template <typename Scalar>
BALLAST_INLINE void load_up_to(const Scalar* from, int64_t count, Lanes<Scalar>& to) {
  count == kLanes ? load(from, to) : load_some(from, count, to);
}
template <typename Scalar>
BALLAST_INLINE void store_up_to(const Lanes<Scalar>& from, int64_t count, Scalar* to) {
  if (count == kLanes) {
    std::memcpy(to, &from, sizeof(from));
  } else {
    store_some(from, count, to);
  }
}

// The sum over the row of of(x).
template <typename Scalar, typename Of>
BALLAST_INLINE Scalar row_sum(const Scalar* x, int64_t width, const Of& of) {
  Lanes<Scalar> sum = {};
  for_lanes(
      width, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
        Lanes<Scalar> part;
        load_up_to(x + i, count, part);
        of(part);
        for (int64_t lane = count; lane < kLanes; ++lane) part[lane] = 0;
        sum += part;
      });
  return sum_of<Scalar>(sum);
}

template <typename Scalar>
BALLAST_INLINE void norm(const NormedRow<Scalar>& r) {
  const auto width = static_cast<Scalar>(r.width);
  const Scalar* x = r.x;
  if (r.change != nullptr) {
    for (int64_t i = 0; i < r.width; ++i) r.sum[i] = r.x[i] + r.change[i];
    x = r.sum;
  }
  Scalar mean = 0;
  if (r.takes_mean) mean = row_sum<Scalar>(x, r.width, [](Lanes<Scalar>&) {}) / width;
  const Scalar square = row_sum<Scalar>(x, r.width, [&](Lanes<Scalar>& part) {
    part -= mean;
    part *= part;
  });
  const Scalar inverse = 1 / std::sqrt(square / width + static_cast<Scalar>(r.epsilon));
  for_lanes(
      r.width, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
        Lanes<Scalar> part, weight, bias = {};
        load_up_to(x + i, count, part);
        load_up_to(r.weight + i, count, weight);
        if (r.bias != nullptr) load_up_to(r.bias + i, count, bias);
        part = (part - mean) * inverse * weight + bias;
        store_up_to(part, count, r.normed + i);
      });
}

// exp(x) of x <= 0, as vector_exponentiate has it (vector_math.cpp).
BALLAST_INLINE void exponentiate(Lanes<float>& x) {
  using Bits = int32_t __attribute__((vector_size(64)));
  const Lanes<float> least = Lanes<float>{} - 86.0F;
  const Lanes<float> clamped = x < least ? least : x;
  const Lanes<float> shifted = clamped * 1.44269504F + 12582912.0F;
  const Lanes<float> n = shifted - 12582912.0F;
  const Lanes<float> r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  Lanes<float> p = r * (1.0F / 5040) + 1.0F / 720;
  for (const float next : {1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F}) p = p * r + next;
  const Bits power = ((Bits)shifted << 23) + (127 << 23);
  x = x < least ? Lanes<float>{} : p * (Lanes<float>)power;
}
BALLAST_INLINE void exponentiate(Lanes<double>& x) {
  for (int64_t lane = 0; lane < kLanes; ++lane) x[lane] = std::exp(x[lane]);
}

// x <- x sigmoid(s)
template <typename Scalar>
BALLAST_INLINE void gate_by(const Lanes<Scalar>& s, Lanes<Scalar>& x) {
  Lanes<Scalar> e = s < 0 ? s : -s;  // no overflow
  exponentiate(e);
  const Lanes<Scalar> one = Lanes<Scalar>{} + Scalar(1);
  x *= (s < 0 ? e : one) / (one + e);
}

template <typename Scalar>
BALLAST_INLINE void gate(const GatedRow<Scalar>& r) {
  for_lanes(
      r.width, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
        Lanes<Scalar> x, other;
        load_up_to(r.x + i, count, x);
        load_up_to(r.other + i, count, other);
        gate_by<Scalar>(Lanes<Scalar>(x), x);
        store_up_to(Lanes<Scalar>(x * other), count, r.y + i);
      });
}

template <typename Scalar>
BALLAST_INLINE void gelu(const GeluRow<Scalar>& r) {
  // 1 + tanh(u) = 2 sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
  constexpr auto kTwice = static_cast<Scalar>(1.5957691216057308);
  constexpr auto kRootHalf = static_cast<Scalar>(0.7071067811865476);
  for_lanes(
      r.width, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
        Lanes<Scalar> x;
        load_up_to(r.x + i, count, x);
        if (r.form == GeluForm::kTanh) {
          const Lanes<Scalar> s = x * (x * x * Scalar(0.044715) + Scalar(1)) * kTwice;
          gate_by<Scalar>(s, x);
        } else {
          for (int64_t lane = 0; lane < kLanes; ++lane)
            x[lane] *= (1 + std::erf(x[lane] * kRootHalf)) / 2;
        }
        store_up_to(x, count, r.y + i);
      });
}

template <typename Scalar>
BALLAST_INLINE void turn(const TurnedRow<Scalar>& r) {
  for_lanes(
      r.half, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
        Lanes<Scalar> first, second, cosine, sine;
        load_up_to(r.x + i, count, first);
        load_up_to(r.x + r.half + i, count, second);
        load_up_to(r.cosines + i, count, cosine);
        load_up_to(r.sines + i, count, sine);
        store_up_to(Lanes<Scalar>(first * cosine - second * sine), count, r.y + i);
        store_up_to(Lanes<Scalar>(second * cosine + first * sine), count, r.y + r.half + i);
      });
}

// kColumns lanes of columns at a time stay in registers, each as kChains sums: value i is added to
// number i % kChains, so that an addition need not wait for the one before it.
template <int kColumns, int kChains, typename Scalar>
BALLAST_INLINE void mix_columns(const SeenRow<Scalar>& r, int64_t first, int64_t count) {
  Lanes<Scalar> sums[kChains][kColumns] = {};
  const auto add = [&](int64_t i, int chain) __attribute__((always_inline)) {
    const Scalar* const row = r.values + i * r.stride + first;
    for (int c = 0; c < kColumns; ++c) {
      Lanes<Scalar> values;
      load_up_to(row + c * kLanes, count, values);
      sums[chain][c] += values * r.weights[i];
    }
  };
  int64_t i = 0;
  for (; i + kChains <= r.seen; i += kChains) {
    for (int chain = 0; chain < kChains; ++chain) add(i + chain, chain);
  }
  for (int chain = 0; chain < kChains; ++chain) {
    if (i + chain < r.seen) add(i + chain, chain);
  }
  for (int c = 0; c < kColumns; ++c) {
    for (int apart = kChains / 2; apart > 0; apart /= 2) {
      for (int chain = 0; chain < apart; ++chain) sums[chain][c] += sums[chain + apart][c];
    }
    store_up_to(sums[0][c], count, r.mixed + first + c * kLanes);
  }
}

template <typename Scalar>
BALLAST_INLINE void mix(const SeenRow<Scalar>& r) {
  int64_t first = 0;
  for (; first + 4 * kLanes <= r.width; first += 4 * kLanes) mix_columns<4, 2>(r, first, kLanes);
  for (; first + 2 * kLanes <= r.width; first += 2 * kLanes) mix_columns<2, 4>(r, first, kLanes);
  for (; first + kLanes <= r.width; first += kLanes) mix_columns<1, 4>(r, first, kLanes);
  if (first < r.width) mix_columns<1, 4>(r, first, r.width - first);
}

// target_clones wants plain functions, so one for each type.
BALLAST_VECTOR_CLONES void clone(const NormedRow<float>& r) { norm(r); }
BALLAST_VECTOR_CLONES void clone(const NormedRow<double>& r) { norm(r); }
BALLAST_VECTOR_CLONES void clone(const GatedRow<float>& r) { gate(r); }
BALLAST_VECTOR_CLONES void clone(const GatedRow<double>& r) { gate(r); }
BALLAST_VECTOR_CLONES void clone(const GeluRow<float>& r) { gelu(r); }
BALLAST_VECTOR_CLONES void clone(const GeluRow<double>& r) { gelu(r); }
BALLAST_VECTOR_CLONES void clone(const TurnedRow<float>& r) { turn(r); }
BALLAST_VECTOR_CLONES void clone(const TurnedRow<double>& r) { turn(r); }
BALLAST_VECTOR_CLONES void clone(const SeenRow<float>& r) { mix(r); }
BALLAST_VECTOR_CLONES void clone(const SeenRow<double>& r) { mix(r); }

}  // namespace

void norm_row(const NormedRow<float>& r) { clone(r); }
void norm_row(const NormedRow<double>& r) { clone(r); }
void gate_row(const GatedRow<float>& r) { clone(r); }
void gate_row(const GatedRow<double>& r) { clone(r); }
void gelu_row(const GeluRow<float>& r) { clone(r); }
void gelu_row(const GeluRow<double>& r) { clone(r); }
void turn_row(const TurnedRow<float>& r) { clone(r); }
void turn_row(const TurnedRow<double>& r) { clone(r); }
void mix_values(const SeenRow<float>& r) { clone(r); }
void mix_values(const SeenRow<double>& r) { clone(r); }

void softmax_row(float* x, int64_t n, float scale) {
  for (int64_t i = 0; i < n; ++i) x[i] *= scale;
  const float sum = vector_exponentiate(x, n, vector_maximum(x, n));
  const float inverse = 1 / sum;
  for (int64_t i = 0; i < n; ++i) x[i] *= inverse;
}
void softmax_row(double* x, int64_t n, double scale) {
  for (int64_t i = 0; i < n; ++i) x[i] *= scale;
  const double largest = *std::max_element(x, x + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - largest);
  for (int64_t i = 0; i < n; ++i) x[i] /= sum;
}

}  // namespace ballast::kernels
