// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ballast/experts/expert_mlp.h"
#include "ballast/kernels/parameter.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::experts {

struct SharedExpertShape {
  int64_t width = 0, hidden = 0, sublayers = 0;  // D, F, residual blocks
  double down_deviation = 0;                     // of fresh last projections; 0: they are zero
  ExpertForm form = {};
  bool biases = true;
};

// The expert that every token passes beside its own. Every worker has it. What all tokens need is
// learned here once, not by each of the other experts. It is a stack of residual blocks as theirs.
class SharedExpert {
 public:
  // Parameters are called NAME.shared.sublayer.0.up.weight and so on.
  SharedExpert(const SharedExpertShape& shape, const std::string& name,
               parameters::ParameterTable& table);

  // What it adds to each of these tokens, which come normed if it does not norm them.
  // [T, D] -> [T, D]
  at::Tensor forward(const at::Tensor& tokens) const;

 private:
  struct Sublayer {
    const kernels::Parameter &norm, &norm_bias;  // [D]
    const kernels::Parameter &up, &up_bias;      // [F, D], [F]
    const kernels::Parameter &down, &down_bias;  // [D, F], [D]
  };
  const ExpertForm form_;
  std::vector<Sublayer> sublayers_;
};

}  // namespace ballast::experts
