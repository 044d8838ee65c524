// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/row_product.h"

#include <algorithm>

#include "ballast/kernels/lanes.h"
#include "ballast/system/vector_clones.h"

namespace ballast::kernels {
namespace {

// Lane i of `sums` is sum_of(a[i]), by the same additions: 15 of these and 30 shuffles.
template <typename Scalar>
BALLAST_INLINE void add_up(Lanes<Scalar> (&a)[kLanes], Lanes<Scalar>& sums) {
  for (int i = 0; i < 8; ++i) {
    a[i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19,
                                   20, 21, 22, 23) +
           __builtin_shufflevector(a[2 * i], a[2 * i + 1], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26,
                                   27, 28, 29, 30, 31);
  }
  for (int i = 0; i < 4; ++i) {
    a[i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19,
                                   24, 25, 26, 27) +
           __builtin_shufflevector(a[2 * i], a[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22,
                                   23, 28, 29, 30, 31);
  }
  for (int i = 0; i < 2; ++i) {
    a[i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21,
                                   24, 25, 28, 29) +
           __builtin_shufflevector(a[2 * i], a[2 * i + 1], 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22,
                                   23, 26, 27, 30, 31);
  }
  sums = __builtin_shufflevector(a[0], a[1], 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                 30) +
         __builtin_shufflevector(a[0], a[1], 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
                                 31);
}

// A tile of kRows x kOutputs <= 16 sums, all in registers.
template <int kRows, int kOutputs, typename Scalar>
BALLAST_INLINE void multiply_tile(const RowProduct<Scalar>& p, int64_t row, int64_t output) {
  Lanes<Scalar> sums[kLanes] = {};
  const Scalar* const x = p.x + row * p.x_stride;
  const Scalar* const weight = p.weight + output * p.weight_stride;
  const auto add_products = [&](const auto& get) __attribute__((always_inline)) {
    Lanes<Scalar> a[kRows];
    for (int r = 0; r < kRows; ++r) get(x + r * p.x_stride, a[r]);
    for (int o = 0; o < kOutputs; ++o) {
      Lanes<Scalar> b;
      get(weight + o * p.weight_stride, b);
      for (int r = 0; r < kRows; ++r) sums[r * kOutputs + o] += a[r] * b;
    }
  };
  int64_t k = 0;
  for (; k + kLanes <= p.inner; k += kLanes)
    add_products([&](const Scalar* from, Lanes<Scalar>& to) { load(from + k, to); });
  if (k < p.inner) {
    add_products(
        [&](const Scalar* from, Lanes<Scalar>& to) { load_some(from + k, p.inner - k, to); });
  }
  Lanes<Scalar> all;
  add_up<Scalar>(sums, all);
  Scalar values[kLanes] = {};
  if (p.bias != nullptr) {
    for (int r = 0; r < kRows; ++r)
      std::memcpy(values + r * kOutputs, p.bias + output, kOutputs * sizeof(Scalar));
    Lanes<Scalar> biases;
    load(values, biases);
    all += biases;
  }
  if (p.relu) all = all < 0 ? Lanes<Scalar>{} : all;
  std::memcpy(values, &all, sizeof(values));
  for (int r = 0; r < kRows; ++r) {
    std::memcpy(p.y + (row + r) * p.y_stride + output, values + r * kOutputs,
                kOutputs * sizeof(Scalar));
  }
}

// The weights of a block's successor, fetched a part with every tile of `sums` sums: otherwise each
// block begins with waiting for memory.
template <typename Scalar>
class NextBlock {
 public:
  NextBlock(const RowProduct<Scalar>& p, int64_t first, int64_t sums) {
    // One row does nothing but read: the processor sees what comes next.
    if (p.rows <= 1 || p.weight_stride != p.inner || first >= p.outputs) return;
    const int64_t numbers = std::min(kLanes, p.outputs - first) * p.inner;
    next_ = reinterpret_cast<const char*>(p.weight + first * p.inner);
    end_ = next_ + numbers * static_cast<int64_t>(sizeof(Scalar));
    part_ = (end_ - next_) * sums / (p.rows * kLanes) + kLine;
  }
  BALLAST_INLINE void fetch_part() {
    const char* const until = std::min(end_, next_ + part_);
    for (; next_ < until; next_ += kLine) __builtin_prefetch(next_, 0, 2);
  }

 private:
  static constexpr int64_t kLine = 64;
  const char *next_ = nullptr, *end_ = nullptr;
  int64_t part_ = 0;
};

// All outputs from `first` on, of kRows rows.
template <int kRows, int kOutputs, typename Scalar>
BALLAST_INLINE void multiply_strip(const RowProduct<Scalar>& p, int64_t row, int64_t first,
                                   int64_t end, NextBlock<Scalar>& ahead) {
  int64_t output = first;
  for (; output + kOutputs <= end; output += kOutputs) {
    ahead.fetch_part();
    multiply_tile<kRows, kOutputs>(p, row, output);
  }
  for (; output < end; ++output) multiply_tile<kRows, 1>(p, row, output);
}

// Weights of a block of outputs stay in the cache while all rows pass them.
template <int kRows, int kOutputs, typename Scalar>
BALLAST_INLINE void multiply_blocks(const RowProduct<Scalar>& p) {
  constexpr int kSums = kRows * kOutputs;
  for (int64_t first = 0; first < p.outputs; first += kLanes) {
    const int64_t end = std::min(first + kLanes, p.outputs);
    NextBlock<Scalar> ahead(p, end, kSums);
    int64_t row = 0;
    for (; row + kRows <= p.rows; row += kRows)
      multiply_strip<kRows, kOutputs>(p, row, first, end, ahead);
    for (; row + 2 <= p.rows; row += 2) multiply_strip<2, kSums / 2>(p, row, first, end, ahead);
    for (; row < p.rows; ++row) multiply_strip<1, kSums>(p, row, first, end, ahead);
  }
}

// target_clones wants plain functions. 32 vectors of 64 bytes hold sixteen sums and what is added;
// with fewer or shorter ones four sums fit.
BALLAST_VECTOR_CLONES void with_many_registers(const RowProduct<float>& p) {
  multiply_blocks<4, 4>(p);
}
BALLAST_VECTOR_CLONES void with_few_registers(const RowProduct<float>& p) {
  multiply_blocks<2, 2>(p);
}
BALLAST_VECTOR_CLONES void with_many_registers(const RowProduct<double>& p) {
  multiply_blocks<2, 2>(p);
}

}  // namespace

void multiply_rows(const RowProduct<float>& product) {
  static const bool many = __builtin_cpu_supports("avx512f");
  many ? with_many_registers(product) : with_few_registers(product);
}
void multiply_rows(const RowProduct<double>& product) { with_many_registers(product); }

}  // namespace ballast::kernels
