// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/library.h>

#include "ballast/kernels/layer_norm_paths.h"

namespace ballast::kernels {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor, Tensor> plain_norm_rows(const Tensor& x,
                                                           const std::optional<Tensor>& change,
                                                           const Tensor& weight,
                                                           const Tensor& bias) {
  const Tensor sum = change ? x + *change : Tensor();
  const auto [normed, mean, inverse_deviation] =
      at::native_layer_norm(change ? sum : x, {x.size(-1)}, weight, bias, kNormEpsilon);
  return {sum, normed, mean, inverse_deviation};
}

Tensor plain_norm_rows_backward(const Tensor& dnormed, const std::optional<Tensor>& dsum,
                                const Tensor& sum, const Tensor& mean,
                                const Tensor& inverse_deviation, const Tensor& weight,
                                const std::optional<Tensor>& weight_sum,
                                const std::optional<Tensor>& bias_sum) {
  // Of the bias it takes the shape alone.
  const auto [dx, dweight, dbias] = at::native_layer_norm_backward(
      dnormed, sum, {sum.size(-1)}, mean, inverse_deviation, weight, /*bias=*/weight,
      {true, weight_sum.has_value(), bias_sum.has_value()});
  if (weight_sum) weight_sum->add_(dweight);
  if (bias_sum) bias_sum->add_(dbias);
  return dsum ? dx.add_(*dsum) : dx;
}

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("norm_rows", plain_norm_rows);
  library.impl("norm_rows_backward", plain_norm_rows_backward);
}

}  // namespace ballast::kernels
