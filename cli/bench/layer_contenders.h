// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/expert_layer.h"
#include "ballast/experts/expert_mlp.h"
#include "ballast/kernels/parameter.h"
#include "ballast/model/device.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::cli {

// What a layer is measured on: tokens [T, D], and the gradient of what it makes of them.
struct LayerPass {
  at::Tensor tokens, gradient;
  uint64_t step = 0;  // decides the shuffle
};

// A layer of experts in training. All take `config.model`'s width and `config.experts`, groups
// resolved.
class MeasuredLayer {
 public:
  MeasuredLayer(const config::Config& config, const model::ComputePlace& place,
                comm::Communicator& workers);

  double run(const LayerPass& pass);  // forward and backward; seconds
  // The same with a clock: what its parts take, by their names in training.
  std::map<std::string, double> run_in_parts(const LayerPass& pass);
  struct Assigned {
    double seconds = 0;
    double busiest = 1;  // rows of the expert that has most, by the mean of all
  };
  // Forward and backward for a known assignment, without a shuffle.
  Assigned run_assigned(const LayerPass& pass, experts::MatrixGradients gradients);

  at::Tensor gate() const;  // [E, D]: a gate's weight or the embeddings, in fp32 on the CPU

 private:
  config::Config config_;
  parameters::ParameterTable table_;
  experts::ExpertLayer layer_;
};

// All tokens through the residual sublayers of one expert, by the kernels of dense blocks; as often
// as a token has experts.
class DenseStack {
 public:
  DenseStack(const config::Config& config, const model::ComputePlace& place);
  double run(const LayerPass& pass);  // forward and backward; seconds

 private:
  struct Sublayer {
    const kernels::Parameter &norm, &norm_bias, &up, &up_bias, &down, &down_bias;
  };
  const int64_t times_;
  parameters::ParameterTable table_;
  std::vector<Sublayer> sublayers_;
};

}  // namespace ballast::cli
