// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/kernels/activation.h"
#include "ballast/kernels/parameter.h"

namespace ballast::kernels {

// x W^T + b.  x [T, I], weight [O, I], bias [O] or nothing -> [T, O]
at::Tensor linear(const at::Tensor& x, const Parameter& weight, const Parameter& bias);
// x + b.  x [T, O], bias [O] -> [T, O]
at::Tensor add_bias(const at::Tensor& x, const Parameter& bias);

// Returns x, to whose rows the bias was added before. The gradient's rows are added to the bias's.
at::Tensor sum_bias_gradient(const at::Tensor& x, const Parameter& bias);

// act(x U^T + u) V^T + v.  x [T, D], up [F, D] (kSwiglu: [2 F, D], the gate's rows first), up_bias
// like its rows, down [D, F], down_bias [D] -> [T, D]. Biases may be undefined.
struct FeedForwardWeights {
  const Parameter& up;
  const Parameter& up_bias;
  const Parameter& down;
  const Parameter& down_bias;
  Activation activation = Activation::kRelu;
};
at::Tensor feed_forward(const at::Tensor& x, const FeedForwardWeights& weights);

// Its inner part, for those who compute in another order.
struct Inner {
  at::Tensor before;  // what was activated; undefined for kRelu, which is taken back by its result
  at::Tensor active;  // [..., F]
};
// x [T, D] or a stack [E, T, D] with weights [E, ...].
Inner activated_product(const at::Tensor& x, const at::Tensor& up, const at::Tensor& up_bias,
                        Activation activation);
// The gradient by what was activated, from dy [T, D] by the feed-forward's result. Its rows are
// added to up_bias_sum, unless that is undefined.
at::Tensor inner_gradient(const at::Tensor& dy, const at::Tensor& down, const Inner& inner,
                          Activation activation, const at::Tensor& up_bias_sum);

}  // namespace ballast::kernels
