// SPDX-License-Identifier: Apache-2.0
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <cmath>

#include "ballast/kernels/adam.h"
#include "ballast/system/vector_clones.h"

namespace ballast {
namespace {

using at::Tensor;

template <typename Scalar>
struct Factors {
  Scalar scale, decay, step_size, beta1, beta2, root_correction, epsilon;
};

template <typename Scalar>
struct Pointers {
  Scalar *master, *first, *second;
  const Scalar* gradient;
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
void run(const Pointers<Scalar>& pointers, const Factors<Scalar>& factors, int64_t size) {
  at::parallel_for(0, size, 32768, [&](int64_t begin, int64_t end) {
    update_range(pointers, factors, begin, end);
  });
}

void adam_cpu_(const Tensor& working, const Tensor& master, const Tensor& gradient,
               const Tensor& first_moment, const Tensor& second_moment,
               const Tensor& gradient_scale, double learning_rate, double beta1, double beta2,
               double epsilon, double weight_decay, int64_t step) {
  TORCH_CHECK(working.is_same(master) || working.data_ptr() == master.data_ptr(),
              "adam_: on the CPU the working copy is the master itself (fp32 or fp64)");
  const auto scale = gradient_scale.item<double>();
  if (!std::isfinite(scale)) return;
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
  const auto launch = [&]<typename Scalar>(Scalar) {
    const Factors<Scalar> factors{Scalar(scale),
                                  Scalar(1 - learning_rate * weight_decay),
                                  Scalar(learning_rate / correction1),
                                  Scalar(beta1),
                                  Scalar(beta2),
                                  Scalar(1 / std::sqrt(correction2)),
                                  Scalar(epsilon)};
    run<Scalar>({master.data_ptr<Scalar>(), first_moment.data_ptr<Scalar>(),
                 second_moment.data_ptr<Scalar>(), gradient.const_data_ptr<Scalar>()},
                factors, master.numel());
  };
  master.scalar_type() == at::kDouble ? launch(double{}) : launch(float{});
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) { library.impl("adam_", adam_cpu_); }

}  // namespace ballast
