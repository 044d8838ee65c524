// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "ballast/config/config.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/parameter.h"
#include "ballast/model/residual_stream.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::model {

// A norm of the residual stream: a weight, and a bias of LayerNorm.
class Norm {
 public:
  Norm(const config::ModelConfig& config, const std::string& name,
       parameters::ParameterTable& table);
  at::Tensor operator()(ResidualStream& x) const;  // [T, D]

 private:
  const kernels::NormForm form_;
  const kernels::Parameter &weight_, &bias_;
};

}  // namespace ballast::model
