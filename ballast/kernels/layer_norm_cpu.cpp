// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/library.h>

#include "ballast/kernels/bias_sums.h"
#include "ballast/kernels/layer_norm_paths.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/rows_alone.h"
#include "ballast/kernels/rows_alone_paths.h"
#include "ballast/kernels/widened.h"

namespace ballast::kernels {

using at::Tensor;

namespace {

// RMSNorm in libtorch's operations; statistics of half precision are in fp32.
std::tuple<Tensor, Tensor> rms_rows(const Tensor& x, const Tensor& weight,
                                    const OptionalTensor& bias, double epsilon) {
  const Tensor wide = widened(x);
  const Tensor inverse = wide.square().mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();
  Tensor normed = (wide * inverse).mul_(widened(weight));
  if (bias) normed.add_(widened(*bias));
  return {normed.to(x.scalar_type()), inverse};
}

Tensor rms_rows_backward(const Tensor& dnormed, const Tensor& x, const Tensor& inverse,
                         const Tensor& weight, const OptionalTensor& weight_sum,
                         const OptionalTensor& bias_sum) {
  const Tensor d = widened(dnormed), unit = widened(x) * inverse;
  if (weight_sum) weight_sum->add_((d * unit).sum(0));
  if (bias_sum) bias_sum->add_(d.sum(0));
  const Tensor scaled = d * widened(weight);
  const Tensor along = (scaled * unit).mean(-1, /*keepdim=*/true);
  return (scaled - unit * along).mul_(inverse).to(x.scalar_type());
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> plain_norm_rows(const Tensor& x,
                                                           const OptionalTensor& change,
                                                           const Tensor& weight,
                                                           const OptionalTensor& bias,
                                                           bool takes_mean, double epsilon) {
  if (RowsAlone::hold_for(x)) return norm_rows_alone(x, change, weight, bias, takes_mean, epsilon);
  const Tensor sum = change ? x + *change : Tensor();
  const Tensor& given = change ? sum : x;
  if (!takes_mean) {
    const auto [normed, inverse] = rms_rows(given, weight, bias, epsilon);
    return {sum, normed, inverse, inverse};
  }
  const auto [normed, mean, inverse_deviation] =
      at::native_layer_norm(given, {x.size(-1)}, weight, bias, epsilon);
  return {sum, normed, mean, inverse_deviation};
}

namespace {

Tensor layer_rows_backward(const Tensor& dnormed, const OptionalTensor& dsum, const Tensor& sum,
                           const Tensor& mean, const Tensor& inverse_deviation,
                           const Tensor& weight, const OptionalTensor& weight_sum,
                           const OptionalTensor& bias_sum) {
  // Of the bias it takes the shape alone.
  const auto [dx, dweight, dbias] = at::native_layer_norm_backward(
      dnormed, sum, {sum.size(-1)}, mean, inverse_deviation, weight, /*bias=*/weight,
      {true, weight_sum.has_value(), bias_sum.has_value()});
  if (weight_sum) weight_sum->add_(dweight);
  if (bias_sum) bias_sum->add_(dbias);
  return dsum ? dx.add_(*dsum) : dx;
}

}  // namespace

Tensor plain_norm_rows_backward(const Tensor& dnormed, const OptionalTensor& dsum,
                                const Tensor& sum, const Tensor& mean,
                                const Tensor& inverse_deviation, const Tensor& weight,
                                const OptionalTensor& weight_sum, const OptionalTensor& bias_sum,
                                bool takes_mean, const OptionalTensor& change_sum) {
  Tensor dx;
  if (takes_mean) {
    dx = layer_rows_backward(dnormed, dsum, sum, mean, inverse_deviation, weight, weight_sum,
                             bias_sum);
  } else {
    dx = rms_rows_backward(dnormed, sum, inverse_deviation, weight, weight_sum, bias_sum);
    if (dsum) dx = dx + *dsum;
  }
  if (change_sum) add_rows(*change_sum, dx);
  return dx;
}

TORCH_LIBRARY_IMPL(ballast, CPU, library) {
  library.impl("norm_rows", plain_norm_rows);
  library.impl("norm_rows_backward", plain_norm_rows_backward);
}

}  // namespace ballast::kernels
