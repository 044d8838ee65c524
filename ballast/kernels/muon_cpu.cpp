// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "ballast/kernels/muon.h"
#include "ballast/kernels/parallel_ranges.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

constexpr int64_t kLeastOfThread = 32768;

// The elements of all matrices, in pieces: `work` is given a piece's place in the flat buffers, its
// place among the directions, and its size.
template <typename Work>
void for_each_piece(const Tensor& offsets, const Tensor& directions, const Work& work) {
  const auto* offset = offsets.const_data_ptr<int64_t>();
  const int64_t each = directions.size(1) * directions.size(2);
  parallel_ranges(directions.numel(), kLeastOfThread, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end;) {
      const int64_t within = first % each, size = std::min(end - first, each - within);
      work(offset[first / each] + within, first, size);
      first += size;
    }
  });
}

void muon_momentum_cpu_(const Tensor& gradient, const Tensor& momentum, const Tensor& offsets,
                        const Tensor& directions, const Tensor& gradient_scale, double decay) {
  AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "muon_momentum_", [&] {
    const auto scale = gradient_scale.item<scalar_t>();
    const bool moves = std::isfinite(scale);
    const scalar_t kept(decay), taken(1 - decay);
    auto *g = gradient.data_ptr<scalar_t>(), *m = momentum.data_ptr<scalar_t>(),
         *out = directions.data_ptr<scalar_t>();
    for_each_piece(offsets, directions, [&](int64_t place, int64_t first, int64_t size) {
      for (int64_t i = 0; i < size; ++i) {
        const scalar_t now = taken * (g[place + i] * scale);
        const scalar_t next = kept * m[place + i] + now;
        out[first + i] = moves ? kept * next + now : 0;
        if (moves) m[place + i] = next;
        g[place + i] = 0;
      }
    });
  });
}

void muon_move_cpu_(const Tensor& working, const Tensor& master, const Tensor& offsets,
                    const Tensor& directions, const Tensor& numbers, const Tensor& gradient_scale,
                    double weight_decay, double rate, double size_of_step) {
  TORCH_CHECK(working.data_ptr() == master.data_ptr(),
              "muon_move_: on the CPU the working copy is the master itself (fp32 or fp64)");
  AT_DISPATCH_FLOATING_TYPES(master.scalar_type(), "muon_move_", [&] {
    if (!std::isfinite(gradient_scale.item<scalar_t>())) return;
    const double learning_rate = *numbers.const_data_ptr<double>() * rate;
    const scalar_t kept(1 - learning_rate * weight_decay), step(learning_rate * size_of_step);
    auto* w = master.data_ptr<scalar_t>();
    const auto* direction = directions.const_data_ptr<scalar_t>();
    for_each_piece(offsets, directions, [&](int64_t place, int64_t first, int64_t size) {
      for (int64_t i = 0; i < size; ++i)
        w[place + i] = w[place + i] * kept - step * direction[first + i];
    });
  });
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("muon_momentum_", muon_momentum_cpu_);
  library.impl("muon_move_", muon_move_cpu_);
}

}  // namespace ballast::kernels
