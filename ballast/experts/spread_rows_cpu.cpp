// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "ballast/experts/lane_sum.h"
#include "ballast/system/vector_clones.h"

namespace ballast::experts {
namespace {

using at::Tensor;

int64_t rows_per_task(int64_t row_bytes) {
  return std::max<int64_t>(1, (int64_t{1} << 16) / (row_bytes + 1));
}

void check_range(const Tensor& places, int64_t rows) {
  const auto* const first = places.const_data_ptr<int64_t>();
  const int64_t count = places.numel();
  const int64_t highest = count > 0 ? *std::max_element(first, first + count) : -1;
  TORCH_CHECK(highest < rows, "row ", highest, " of ", rows);
}

template <typename Scalar>
struct Sums {
  int64_t width, places;
  const Scalar* x;
  const int64_t* rows;  // [places]
  Scalar* y;
};

template <typename Scalar>
BALLAST_INLINE void sum_row(const Sums<Scalar>& r) {
  using Sum = at::opmath_type<Scalar>;
  constexpr int64_t kBlock = 64;
  Sum sums[kBlock];
  for (int64_t first = 0; first < r.width; first += kBlock) {
    const int64_t count = std::min(kBlock, r.width - first);
    std::fill_n(sums, kBlock, Sum(0));
    for (int64_t k = 0; k < r.places; ++k) {
      if (r.rows[k] < 0) continue;
      const Scalar* const __restrict x = r.x + r.rows[k] * r.width + first;
      for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<Sum>(x[i]);
    }
    for (int64_t i = 0; i < count; ++i) r.y[first + i] = static_cast<Scalar>(sums[i]);
  }
}

template <typename Scalar>
struct Mix {
  using Sum = at::opmath_type<Scalar>;
  int64_t width, places;
  const Scalar *h, *y;
  const int64_t* rows;  // [places]
  const Sum* weights;   // [places]
  Scalar* mixed;
};

template <typename Scalar>
BALLAST_INLINE void mix_row(const Mix<Scalar>& r) {
  using Sum = at::opmath_type<Scalar>;
  constexpr int64_t kBlock = 64;
  Sum sums[kBlock];
  for (int64_t first = 0; first < r.width; first += kBlock) {
    const int64_t count = std::min(kBlock, r.width - first);
    const Scalar* const __restrict h = r.h + first;
    for (int64_t i = 0; i < count; ++i) sums[i] = static_cast<Sum>(h[i]);
    for (int64_t k = 0; k < r.places; ++k) {
      if (r.rows[k] < 0) continue;
      const Scalar* const __restrict y = r.y + r.rows[k] * r.width + first;
      const Sum weight = r.weights[k];
      for (int64_t i = 0; i < count; ++i) {
        sums[i] += weight * (static_cast<Sum>(y[i]) - static_cast<Sum>(h[i]));
      }
    }
    for (int64_t i = 0; i < count; ++i) r.mixed[first + i] = static_cast<Scalar>(sums[i]);
  }
}

template <typename Scalar>
struct MixBack {
  using Sum = at::opmath_type<Scalar>;
  int64_t width, places;
  const Scalar *h, *y, *dmixed;
  const int64_t* rows;  // [places]
  const Sum* weights;   // [places]
  Scalar *dh, *dy;
  Sum* dweights;  // [places]
};

// d . (y - h)
template <typename Scalar, typename Sum>
BALLAST_INLINE Sum change_along(const Scalar* __restrict d, const Scalar* __restrict y,
                                const Scalar* __restrict h, int64_t n) {
  return lane_sum<Sum>(n, [&](int64_t i) {
    return static_cast<Sum>(d[i]) * (static_cast<Sum>(y[i]) - static_cast<Sum>(h[i]));
  });
}

template <typename Scalar>
BALLAST_INLINE void mix_row_backward(const MixBack<Scalar>& r) {
  using Sum = at::opmath_type<Scalar>;
  const Scalar* const __restrict d = r.dmixed;
  Sum passed = 1;
  for (int64_t k = 0; k < r.places; ++k) {
    r.dweights[k] = 0;
    if (r.rows[k] < 0) continue;
    const Sum weight = r.weights[k];
    passed -= weight;
    r.dweights[k] = change_along<Scalar, Sum>(d, r.y + r.rows[k] * r.width, r.h, r.width);
    Scalar* const __restrict dy = r.dy + r.rows[k] * r.width;
    for (int64_t i = 0; i < r.width; ++i) {
      dy[i] = static_cast<Scalar>(weight * static_cast<Sum>(d[i]));
    }
  }
  Scalar* const __restrict dh = r.dh;
  for (int64_t i = 0; i < r.width; ++i) {
    dh[i] = static_cast<Scalar>(passed * static_cast<Sum>(d[i]));
  }
}

// target_clones wants plain functions, so one for each type.
BALLAST_VECTOR_CLONES void clone(const Sums<float>& r) { sum_row(r); }
BALLAST_VECTOR_CLONES void clone(const Sums<double>& r) { sum_row(r); }
BALLAST_VECTOR_CLONES void clone(const Sums<at::BFloat16>& r) { sum_row(r); }
BALLAST_VECTOR_CLONES void clone(const Mix<float>& r) { mix_row(r); }
BALLAST_VECTOR_CLONES void clone(const Mix<double>& r) { mix_row(r); }
BALLAST_VECTOR_CLONES void clone(const Mix<at::BFloat16>& r) { mix_row(r); }
BALLAST_VECTOR_CLONES void clone(const MixBack<float>& r) { mix_row_backward(r); }
BALLAST_VECTOR_CLONES void clone(const MixBack<double>& r) { mix_row_backward(r); }
BALLAST_VECTOR_CLONES void clone(const MixBack<at::BFloat16>& r) { mix_row_backward(r); }

void clear_rows_without_source(const Tensor& rows, const Tensor& source_of_row) {
  const auto* const source = source_of_row.const_data_ptr<int64_t>();
  const auto bytes = static_cast<int64_t>(rows.size(1) * rows.element_size());
  auto* const to = static_cast<char*>(rows.mutable_data_ptr());
  at::parallel_for(0, rows.size(0), rows_per_task(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (source[i] < 0) std::memset(to + i * bytes, 0, bytes);
    }
  });
}

Tensor gather_rows_cpu(const Tensor& x, const Tensor& source_of_row) {
  check_range(source_of_row, x.size(0));
  const int64_t rows = source_of_row.size(0);
  const auto* const source = source_of_row.const_data_ptr<int64_t>();
  const Tensor y = at::empty({rows, x.size(1)}, x.options());
  const auto bytes = static_cast<int64_t>(x.size(1) * x.element_size());
  const auto* const from = static_cast<const char*>(x.const_data_ptr());
  auto* const to = static_cast<char*>(y.mutable_data_ptr());
  at::parallel_for(0, rows, rows_per_task(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (source[i] < 0) {
        std::memset(to + i * bytes, 0, bytes);
      } else {
        std::memcpy(to + i * bytes, from + source[i] * bytes, bytes);
      }
    }
  });
  return y;
}

Tensor sum_rows_cpu(const Tensor& x, const Tensor& rows) {
  check_range(rows, x.size(0));
  const int64_t width = x.size(1), places = rows.size(1);
  const auto* const row = rows.const_data_ptr<int64_t>();
  const Tensor y = at::empty({rows.size(0), width}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, x.scalar_type(), "spread_rows", [&] {
    const auto* const from = x.const_data_ptr<scalar_t>();
    auto* const to = y.data_ptr<scalar_t>();
    at::parallel_for(
        0, rows.size(0), rows_per_task(width * x.element_size()), [&](int64_t begin, int64_t end) {
          for (int64_t j = begin; j < end; ++j) {
            clone(Sums<scalar_t>{width, places, from, row + j * places, to + j * width});
          }
        });
  });
  return y;
}

Tensor mix_rows_cpu(const Tensor& h, const Tensor& y, const Tensor& rows, const Tensor& weights) {
  check_range(rows, y.size(0));
  const int64_t width = h.size(1), places = rows.size(1);
  const Tensor mixed = at::empty_like(h);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, h.scalar_type(), "mix_rows", [&] {
    using Sum = at::opmath_type<scalar_t>;
    const auto work = [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        clone(Mix<scalar_t>{
            .width = width,
            .places = places,
            .h = h.const_data_ptr<scalar_t>() + j * width,
            .y = y.const_data_ptr<scalar_t>(),
            .rows = rows.const_data_ptr<int64_t>() + j * places,
            .weights = weights.const_data_ptr<Sum>() + j * places,
            .mixed = mixed.data_ptr<scalar_t>() + j * width,
        });
      }
    };
    at::parallel_for(0, h.size(0), rows_per_task(width * h.element_size()), work);
  });
  return mixed;
}

std::tuple<Tensor, Tensor, Tensor> mix_rows_backward_cpu(const Tensor& dmixed, const Tensor& h,
                                                         const Tensor& y, const Tensor& rows,
                                                         const Tensor& source,
                                                         const Tensor& weights) {
  const int64_t width = h.size(1), places = rows.size(1);
  const Tensor dh = at::empty_like(h), dy = at::empty_like(y), dweights = at::empty_like(weights);
  clear_rows_without_source(dy, source);
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, h.scalar_type(), "mix_rows_backward", [&] {
    using Sum = at::opmath_type<scalar_t>;
    const auto work = [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        clone(MixBack<scalar_t>{
            .width = width,
            .places = places,
            .h = h.const_data_ptr<scalar_t>() + j * width,
            .y = y.const_data_ptr<scalar_t>(),
            .dmixed = dmixed.const_data_ptr<scalar_t>() + j * width,
            .rows = rows.const_data_ptr<int64_t>() + j * places,
            .weights = weights.const_data_ptr<Sum>() + j * places,
            .dh = dh.data_ptr<scalar_t>() + j * width,
            .dy = dy.data_ptr<scalar_t>(),
            .dweights = dweights.data_ptr<Sum>() + j * places,
        });
      }
    };
    at::parallel_for(0, h.size(0), rows_per_task(width * h.element_size()), work);
  });
  return {dh, dy, dweights};
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("gather_rows", gather_rows_cpu);
  library.impl("sum_rows", sum_rows_cpu);
  library.impl("mix_rows", mix_rows_cpu);
  library.impl("mix_rows_backward", mix_rows_backward_cpu);
}

}  // namespace ballast::experts
