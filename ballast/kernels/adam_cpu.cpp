// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "ballast/kernels/adam.h"
#include "ballast/system/vector_clones.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

template <typename Scalar>
struct Factors {
  Scalar scale, decay, step_size, beta1, beta2, root_correction, epsilon;
};

template <typename Scalar>
struct Pointers {
  Scalar *master, *first, *second, *gradient;
};

template <typename Scalar>
inline __attribute__((always_inline)) void update(const Pointers<Scalar>& p,
                                                  const Factors<Scalar>& f, int64_t begin,
                                                  int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const Scalar g = p.gradient[i] * f.scale;
    const Scalar m = f.beta1 * p.first[i] + (1 - f.beta1) * g;
    const Scalar v = f.beta2 * p.second[i] + (1 - f.beta2) * g * g;
    p.first[i] = m;
    p.second[i] = v;
    p.master[i] =
        p.master[i] * f.decay - f.step_size * m / (std::sqrt(v) * f.root_correction + f.epsilon);
  }
}

// target_clones wants plain functions, so one for each type.
BALLAST_VECTOR_CLONES void update_range(const Pointers<float>& p, const Factors<float>& f,
                                        int64_t begin, int64_t end) {
  update(p, f, begin, end);
}
BALLAST_VECTOR_CLONES void update_range(const Pointers<double>& p, const Factors<double>& f,
                                        int64_t begin, int64_t end) {
  update(p, f, begin, end);
}

template <typename Scalar>
void run(const Pointers<Scalar>& pointers, const Factors<Scalar>& factors, int64_t size,
         bool clear) {
  constexpr int64_t kPiece = 8192;  // small enough for the gradient to be in a cache when cleared
  at::parallel_for(0, size, 4 * kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kPiece) {
      const int64_t last = std::min(end, first + kPiece);
      if (std::isfinite(factors.scale)) update_range(pointers, factors, first, last);
      if (clear) std::fill(pointers.gradient + first, pointers.gradient + last, Scalar(0));
    }
  });
}

void adam_cpu_(const Tensor& working, const Tensor& master, const Tensor& gradient,
               const Tensor& first_moment, const Tensor& second_moment, const Tensor& numbers,
               const Tensor& gradient_scale, double beta1, double beta2, double epsilon,
               double weight_decay, double rate, bool clear) {
  TORCH_CHECK(working.is_same(master) || working.data_ptr() == master.data_ptr(),
              "adam_: on the CPU the working copy is the master itself (fp32 or fp64)");
  const auto* number = numbers.const_data_ptr<double>();
  const double learning_rate = number[0] * rate, correction1 = number[1], correction2 = number[2];
  const auto launch = [&]<typename Scalar>(Scalar) {
    const Factors<Scalar> factors{gradient_scale.item<Scalar>(),
                                  Scalar(1 - learning_rate * weight_decay),
                                  Scalar(learning_rate / correction1),
                                  Scalar(beta1),
                                  Scalar(beta2),
                                  Scalar(1 / std::sqrt(correction2)),
                                  Scalar(epsilon)};
    run<Scalar>({master.data_ptr<Scalar>(), first_moment.data_ptr<Scalar>(),
                 second_moment.data_ptr<Scalar>(), gradient.data_ptr<Scalar>()},
                factors, master.numel(), clear);
  };
  master.scalar_type() == at::kDouble ? launch(double{}) : launch(float{});
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) { library.impl("adam_", adam_cpu_); }

}  // namespace ballast::kernels
