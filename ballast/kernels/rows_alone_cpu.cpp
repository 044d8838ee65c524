// SPDX-License-Identifier: Apache-2.0
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/relu.h>

#include <algorithm>
#include <cmath>

#include "ballast/kernels/lanes.h"
#include "ballast/kernels/optional_tensor.h"
#include "ballast/kernels/row_loops.h"
#include "ballast/kernels/row_product.h"
#include "ballast/kernels/rows_alone_paths.h"

namespace ballast::kernels {

using at::Tensor;

namespace {

// Less work than this, in products of two numbers, is not worth waking a thread.
constexpr int64_t kProductsPerTask = 1 << 18;
constexpr int64_t kNumbersPerTask = 1 << 14;

int64_t rows_per_task(int64_t width) { return kNumbersPerTask / (width + 1) + 1; }

Tensor with_dense_rows(const Tensor& x) { return x.stride(1) == 1 ? x : x.contiguous(); }

}  // namespace

Tensor multiply_rows_alone(const Tensor& given, const Tensor& weights, const Tensor& bias,
                           Activation activation) {
  TORCH_CHECK(given.dim() == 2 && weights.dim() == 2 && given.size(1) == weights.size(1),
              "multiply_rows_alone: want x [T, I] and weight [O, I], got ", given.sizes(), " and ",
              weights.sizes());
  const Tensor x = with_dense_rows(given), weight = with_dense_rows(weights);
  const int64_t rows = x.size(0), inner = x.size(1), outputs = weight.size(0);
  const Tensor y = at::empty({rows, outputs}, x.options());
  // Threads have whole blocks of outputs.
  const int64_t blocks = (outputs + kLanes - 1) / kLanes;
  const int64_t grain = kProductsPerTask / (rows * inner * kLanes + 1) + 1;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "multiply_rows_alone", [&] {
    at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kLanes;
      multiply_rows(RowProduct<scalar_t>{
          .rows = rows,
          .outputs = std::min(end * kLanes, outputs) - first,
          .inner = inner,
          .x = x.const_data_ptr<scalar_t>(),
          .x_stride = x.stride(0),
          .weight = weight.const_data_ptr<scalar_t>() + first * weight.stride(0),
          .weight_stride = weight.stride(0),
          .bias = bias.defined() ? bias.const_data_ptr<scalar_t>() + first : nullptr,
          .relu = activation == Activation::kRelu,
          .y = y.data_ptr<scalar_t>() + first,
          .y_stride = outputs});
    });
  });
  return y;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> norm_rows_alone(const Tensor& given,
                                                           const OptionalTensor& added,
                                                           const Tensor& weight,
                                                           const OptionalTensor& bias,
                                                           bool takes_mean, double epsilon) {
  const Tensor x = given.contiguous(), change = added ? added->contiguous() : Tensor();
  const Tensor sum = added ? at::empty_like(x) : Tensor(), normed = at::empty_like(x);
  const int64_t width = x.size(-1), rows = x.numel() / std::max<int64_t>(1, width);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "norm_rows_alone", [&] {
    const auto at_row = [&](const Tensor& of, int64_t row) {
      return of.defined() ? of.data_ptr<scalar_t>() + row * width : nullptr;
    };
    at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        norm_row(NormedRow<scalar_t>{.width = width,
                                     .x = at_row(x, row),
                                     .change = at_row(change, row),
                                     .weight = weight.const_data_ptr<scalar_t>(),
                                     .bias = data_or_null<scalar_t>(bias),
                                     .takes_mean = takes_mean,
                                     .epsilon = epsilon,
                                     .sum = at_row(sum, row),
                                     .normed = at_row(normed, row)});
      }
    });
  });
  const Tensor none = at::empty({0}, x.options());
  return {sum, normed, none, none};
}

Tensor activate_rows_alone(const Tensor& given, Activation activation) {
  if (activation == Activation::kRelu) return at::relu(given);
  if (activation == Activation::kRelu2) return at::relu(given).square_();
  const Tensor x = given.contiguous();
  const int64_t taken = x.size(-1), width = taken / columns_taken(activation);
  const int64_t rows = x.numel() / std::max<int64_t>(1, taken);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = width;
  const Tensor y = at::empty(shape, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "activate_rows_alone", [&] {
    const auto* const from = x.const_data_ptr<scalar_t>();
    auto* const to = y.data_ptr<scalar_t>();
    at::parallel_for(0, rows, rows_per_task(width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const auto* const x_row = from + row * taken;
        if (activation == Activation::kSwiglu) {
          gate_row(GatedRow<scalar_t>{width, x_row, x_row + width, to + row * width});
        } else {
          const auto form = activation == Activation::kGelu ? GeluForm::kErf : GeluForm::kTanh;
          gelu_row(GeluRow<scalar_t>{width, x_row, form, to + row * width});
        }
      }
    });
  });
  return y;
}

namespace {

// The heads of queries and keys of one token, where `heads.columns()` numbers were copied to.
template <typename Scalar>
void turn_token(const Heads& heads, const Turning& turning, int64_t token, Scalar* row) {
  for (int64_t head = 0; head < heads.queries + heads.keys; ++head) {
    Scalar* const x = row + head * heads.width;
    if (turning.norms()) {
      const Parameter& norm = head < heads.queries ? turning.query_norm : turning.key_norm;
      norm_row(NormedRow<Scalar>{.width = heads.width,
                                 .x = x,
                                 .change = nullptr,
                                 .weight = norm.value.const_data_ptr<Scalar>(),
                                 .bias = nullptr,
                                 .takes_mean = false,
                                 .epsilon = turning.epsilon,
                                 .sum = nullptr,
                                 .normed = x});
    }
    if (turning.turns()) {
      const int64_t half = heads.width / 2;
      const int64_t angles = token % turning.cosines.size(0) * half;
      turn_row(TurnedRow<Scalar>{half, x, turning.cosines.const_data_ptr<Scalar>() + angles,
                                 turning.sines.const_data_ptr<Scalar>() + angles, x});
    }
  }
}

}  // namespace

Tensor turn_rows_alone(const Tensor& qkv, const Heads& heads, const Turning& given) {
  const Tensor turned = qkv.contiguous().clone();
  Turning turning = given;
  if (turning.turns()) {
    turning.cosines = given.cosines.contiguous();
    turning.sines = given.sines.contiguous();
  }
  AT_DISPATCH_FLOATING_TYPES(qkv.scalar_type(), "turn_rows_alone", [&] {
    auto* const rows = turned.data_ptr<scalar_t>();
    at::parallel_for(0, qkv.size(0), rows_per_task(heads.columns()),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t t = begin; t < end; ++t)
                         turn_token(heads, turning, t, rows + t * heads.columns());
                     });
  });
  return turned;
}

Tensor cap_rows_alone(const Tensor& given, double cap) {
  const Tensor x = given.contiguous(), y = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "cap_rows_alone", [&] {
    const auto* const from = x.const_data_ptr<scalar_t>();
    auto* const to = y.data_ptr<scalar_t>();
    const auto most = static_cast<scalar_t>(cap);
    at::parallel_for(0, x.numel(), kNumbersPerTask / 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = std::tanh(from[i] / most) * most;
    });
  });
  return y;
}

}  // namespace ballast::kernels
