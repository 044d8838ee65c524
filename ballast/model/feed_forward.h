// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/kernels/activation.h"
#include "ballast/kernels/parameter.h"
#include "ballast/model/norm.h"
#include "ballast/model/residual_stream.h"
#include "ballast/parameters/parameter_table.h"
#include "ballast/step/step_watch.h"

namespace ballast::model {

// Norm, D -> F, activation, F -> D, without the residual connection. The F are divided among the
// shards of a replica; x and the result are alike on all of them.
class FeedForward {
 public:
  // Of block number `block`. REQUIRES: the shards divide F, and outlive this.
  FeedForward(const config::ModelConfig& config, int64_t block, parameters::ParameterTable& table,
              comm::Communicator& shards);
  at::Tensor forward(ResidualStream& x, step::StepWatch* watch = nullptr,
                     BiasGradient of_down_bias = BiasGradient::kHere) const;  // [T, D]
  const kernels::Parameter& down_bias() const { return down_bias_; }

 private:
  const int64_t block_;
  const kernels::Activation activation_;
  comm::Communicator& shards_;
  Norm norm_;
  const kernels::Parameter &up_, &up_bias_, &down_, &down_bias_;
};

}  // namespace ballast::model
