// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/_grouped_mm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <functional>
#include <optional>

#include "ballast/kernels/expert_products.h"
#include "ballast/kernels/expert_row_passes_cuda.cuh"

namespace ballast {
namespace {

using at::Tensor;

enum Weight { kNorm, kNormBias, kUp, kUpBias, kDown, kDownBias };
enum Kept { kEnds, kNormed, kMean, kInverse, kActive };

// Products of each expert's rows, at their places, with its own matrix.
class ExpertProducts {
 public:
  ExpertProducts(ProductWay way, const RowPlaces& at, std::vector<int64_t> counts)
      : way_(way), at_(at), counts_(std::move(counts)) {}

  // x_e w_e.  x [R, I], weights [E, I, O], whose I or O lies dense -> [R, O]
  Tensor multiply(const Tensor& x, const Tensor& weights) const {
    if (way_ == ProductWay::kGrouped) return at::_grouped_mm(x, weights, at_.ends);
    if (way_ == ProductWay::kPadded)
      return at::bmm(blocks_of(x), weights).view({x.size(0), weights.size(2)});
    const Tensor y = at::empty({x.size(0), weights.size(2)}, x.options());
    for_each_expert([&](int64_t e, int64_t row, int64_t count) {
      Tensor y_here = y.narrow(0, row, count);
      at::mm_out(y_here, x.narrow(0, row, count), weights[e]);
    });
    return y;
  }

  // sum_e += y_e^T x_e.  sum [E, O, I] or undefined, y [R, O], x [R, I]
  void add_outer(const Tensor& sum, const Tensor& y, const Tensor& x) const {
    if (!sum.defined()) return;
    if (way_ == ProductWay::kGrouped) {
      add_to_experts(sum, at::_grouped_mm(y.t(), x, at_.ends), at_.ends);
    } else if (way_ == ProductWay::kPadded) {
      sum.baddbmm_(blocks_of(y).transpose(1, 2), blocks_of(x));
    } else {
      for_each_expert([&](int64_t e, int64_t row, int64_t count) {
        sum[e].addmm_(y.narrow(0, row, count).t(), x.narrow(0, row, count));
      });
    }
  }

 private:
  Tensor blocks_of(const Tensor& x) const { return x.view({-1, at_.block, x.size(1)}); }

  void for_each_expert(const std::function<void(int64_t, int64_t, int64_t)>& work) const {
    int64_t row = 0;
    for (size_t e = 0; e < counts_.size(); row += counts_[e++]) {
      if (counts_[e] > 0) work(static_cast<int64_t>(e), row, counts_[e]);
    }
  }

  const ProductWay way_;
  const RowPlaces& at_;
  const std::vector<int64_t> counts_;
};

RowPlaces places_of(ProductWay way, const Tensor& ends, int64_t rows,
                    const std::vector<int64_t>& counts) {
  return {ends, rows, way == ProductWay::kPadded ? rows_of_block(counts) : 0};
}

std::vector<Tensor> forward(const Tensor& x, int64_t way_number, const std::optional<Tensor>& ends,
                            at::IntArrayRef rows_of_expert, at::TensorList w) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto way = static_cast<ProductWay>(way_number);
  const std::vector<int64_t> counts = rows_of_expert.vec();
  Tensor known = ends.value_or(Tensor());
  if (!known.defined()) {
    known = at::empty({w[kUp].size(0)}, x.options().dtype(at::kInt));
    set_ends(known, counts);
  }
  const RowPlaces at = places_of(way, known, x.size(0), counts);
  const ExpertProducts products(way, at, counts);
  const auto [normed, mean, inverse] = normalize_by_expert(at, x, w[kNorm], w[kNormBias]);
  const Tensor active = products.multiply(normed, w[kUp].transpose(1, 2));
  add_bias_relu(at, active, w[kUpBias]);
  const Tensor change = products.multiply(active, w[kDown].transpose(1, 2));
  return {add_residual_bias(at, x, change, w[kDownBias]), known, normed, mean, inverse, active};
}

Tensor backward(const Tensor& dy, const Tensor& x, int64_t way_number,
                at::IntArrayRef rows_of_expert, at::TensorList w, at::TensorList kept,
                const c10::List<std::optional<Tensor>>& gradient_sums) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto way = static_cast<ProductWay>(way_number);
  const std::vector<int64_t> counts = rows_of_expert.vec();
  const RowPlaces at = places_of(way, kept[kEnds], x.size(0), counts);
  const ExpertProducts products(way, at, counts);
  std::vector<Tensor> sums;
  for (const std::optional<Tensor>& sum : gradient_sums) sums.push_back(sum.value_or(Tensor()));

  const Tensor dchange = to_places(at, dy);
  products.add_outer(sums[kDown], dchange, kept[kActive]);
  const Tensor dactive = products.multiply(dchange, w[kDown]);
  mask_inactive_by_expert(at, kept[kActive], dactive, sums[kUpBias]);
  products.add_outer(sums[kUp], dactive, kept[kNormed]);
  const Tensor dnormed = products.multiply(dactive, w[kUp]);
  const NormGradient gradient{dnormed, dy, x, kept[kMean], kept[kInverse], w[kNorm]};
  add_norm_columns(at, gradient, {sums[kNorm], sums[kNormBias], sums[kDownBias]});
  return normalize_by_expert_backward(at, gradient);
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) {
  library.impl("expert_feed_forward_uneven", forward);
  library.impl("expert_feed_forward_uneven_backward", backward);
}

}  // namespace ballast
