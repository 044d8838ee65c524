// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "ballast/experts/chosen_weights.h"
#include "ballast/experts/router.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/parameter.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::experts {

// How a router looks at tokens, whatever it then decides: the knobs features, gate and scores. It
// has an embedding w_e of each expert; the affinity of token h and expert e is f(h) . w_e, where f
// is the decoder's norm, or nothing: it may be given tokens that the layer has normed.
class RouterFrame {
 public:
  // Declares layer.LAYER.NORM.weight and .bias where features are normed, then the embeddings
  // [E, D], layer.LAYER.EMBEDDINGS.
  RouterFrame(const RouterPlace& place, const std::string& norm, const std::string& embeddings,
              parameters::Initialization initialization);

  // tokens [T, D] -> [T, E] fp32, or fp64 for tokens in fp64: in half precision many would be
  // equal.
  at::Tensor affinities(const at::Tensor& tokens) const;
  // What is compared to choose experts: affinities, of cosine scores divided by the length of w_e.
  // No gradient flows through a choice.  [T, E]
  at::Tensor scores(const at::Tensor& affinities) const;
  // [E] in this type: what scores are divided by; undefined: by nothing.
  at::Tensor lengths(at::ScalarType type) const;
  // What each token takes of its experts [K, T], from the affinities as they are.  [T, K]
  // `balance`: as chosen_weights has it.
  at::Tensor weights(const at::Tensor& affinities, const at::Tensor& expert,
                     const at::Tensor& balance = {}) const;

  const kernels::Parameter& embeddings() const { return embeddings_; }  // [E, D]

 private:
  const bool divides_;
  const ChosenGate gate_;
  const kernels::NormForm form_;
  const bool norms_;
  const kernels::Parameter &norm_, &norm_bias_;  // [D]; without a value: there is none
  const kernels::Parameter& embeddings_;
};

}  // namespace ballast::experts
