// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/expert_layer.h"
#include "ballast/experts/router.h"
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
class WholeLayer {
 public:
  WholeLayer(const Config& config, const ComputePlace& place, Communicator& workers);
  double run(const LayerPass& pass);  // forward and backward; seconds
  at::Tensor gate() const;  // [E, D]: a gate's weight or the embeddings, in fp32 on the CPU

 private:
  Config config_;
  ParameterTable table_;
  ExpertLayer layer_;
};

// All tokens through the residual sublayers of one expert, by the kernels of dense blocks; as often
// as a token has experts.
class DenseStack {
 public:
  DenseStack(const Config& config, const ComputePlace& place);
  double run(const LayerPass& pass);  // forward and backward; seconds

 private:
  struct Sublayer {
    const Parameter &norm, &norm_bias, &up, &up_bias, &down, &down_bias;
  };
  const int64_t times_;
  ParameterTable table_;
  std::vector<Sublayer> sublayers_;
};

// The steps of ExpertLayer::forward one by one, each with its backward, to see what they take.
class LayerInParts {
 public:
  // shuffle: drawing it. assign: affinities, assignment and where tokens go; for a gate also its
  // gradient. exchange: moving rows, for the shuffle, and with gates to the experts. experts: for
  // BASE with the way there and back and the gate. gate: for gates, weights times outputs.
  static const std::vector<std::string>& parts();

  LayerInParts(const Config& config, const ComputePlace& place, Communicator& workers);

  struct Times {
    std::map<std::string, double> seconds = {};  // of each part
    double busiest = 1;                          // rows of the busiest expert over the mean of all
  };
  Times run(const LayerPass& pass);
  // All but shuffle and assign, for a known assignment, as one; seconds.
  double run_assigned(const LayerPass& pass, MatrixGradients gradients);

 private:
  RowExchange draw_shuffle(const LayerPass& pass, const TrainingRoute& route);

  Config config_;
  Communicator& workers_;
  ParameterTable table_;
  std::unique_ptr<Router> router_;
  ExpertStack experts_;
  std::map<std::string, DeviceTimer> timers_;
};

}  // namespace ballast::cli
