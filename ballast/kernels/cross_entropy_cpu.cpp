// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "ballast/kernels/cross_entropy.h"
#include "ballast/kernels/vector_math.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

float row_maximum(const float* x, int64_t n) { return vector_maximum(x, n); }
double row_maximum(const double* x, int64_t n) { return *std::max_element(x, x + n); }

// x <- exp(x - shift); returns the sum.
float exponentiate(float* x, int64_t n, float shift) { return vector_exponentiate(x, n, shift); }
double exponentiate(double* x, int64_t n, double shift) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - shift);
  return sum;
}

template <typename Scalar>
Scalar row_loss_and_gradient(Scalar* row, int64_t vocabulary, int64_t target, Scalar scale) {
  if (target < 0) {
    std::fill_n(row, vocabulary, Scalar(0));
    return 0;
  }
  const Scalar maximum = row_maximum(row, vocabulary), at_target = row[target];
  const Scalar sum = exponentiate(row, vocabulary, maximum);
  const Scalar factor = scale / sum;
  for (int64_t i = 0; i < vocabulary; ++i) row[i] *= factor;
  row[target] -= scale;
  return std::log(sum) + (maximum - at_target);  // the difference first: both may be huge
}

void softmax_cross_entropy_cpu_(Tensor& logits, const Tensor& targets, double scale,
                                const Tensor& losses) {
  const int64_t vocabulary = logits.size(1);
  const int64_t* target = targets.const_data_ptr<int64_t>();
  const int64_t highest =
      targets.size(0) > 0 ? *std::max_element(target, target + targets.size(0)) : -1;
  TORCH_CHECK(highest < vocabulary, "softmax_cross_entropy_: target ", highest, " does not fit ",
              vocabulary, " classes");
  AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), "softmax_cross_entropy_", [&] {
    auto* rows = logits.data_ptr<scalar_t>();
    auto* loss = losses.data_ptr<scalar_t>();
    at::parallel_for(0, logits.size(0), std::max<int64_t>(1, 32768 / vocabulary),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t r = begin; r < end; ++r) {
                         loss[r] = row_loss_and_gradient(rows + r * vocabulary, vocabulary,
                                                         target[r], static_cast<scalar_t>(scale));
                       }
                     });
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("softmax_cross_entropy_", softmax_cross_entropy_cpu_);
}

}  // namespace ballast::kernels
