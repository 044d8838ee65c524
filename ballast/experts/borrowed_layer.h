// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/expert_layer.h"
#include "ballast/experts/routing.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::experts {

// A layer of experts inside other people's programs: parameters and prices are the caller's, and
// each pass is a function of its arguments. What is kept from one pass to the next is memory.
class BorrowedLayer {
 public:
  // REQUIRES: as ExpertLayer's.
  BorrowedLayer(const config::Config& config, int64_t place,
                std::shared_ptr<comm::Communicator> workers);

  // What the layer declares. A parameter is one of table().entries(): a stack of experts is one
  // tensor [experts of this worker, ...].
  const parameters::ParameterTable& table() const { return table_; }
  int64_t groups_of_worker() const;  // routing groups of this worker's tokens in training
  // Of a step of training with these workers, whose gradients are averaged later.
  TrainingRoute training_route(int64_t step) const;

  struct Arguments {
    at::Tensor tokens;        // [T, D]
    at::Tensor earlier = {};  // [T, D]: see ExpertLayer::forward; undefined: there is none
    std::vector<at::Tensor> parameters;  // in the tokens' type, on their device
    at::Tensor prices = {};              // [E] float64, on their device; of gates undefined
    at::Tensor experts = {};             // a `chosen` to use again, in training; undefined: choose
    RoutingMode mode = RoutingMode::kGreedy;
    std::optional<TrainingRoute> training = {};
    bool keeps_graph = false;  // backward() will be called
  };
  struct Result {
    at::Tensor output;  // [T, D]
    at::Tensor chosen;  // int32: in training as RouteTape keeps it; else each token's first, [1, T]
    // [E] float64: the mean over the groups of all workers of the prices found, less their mean;
    // [0] of gates, outside of training, and where experts were used again.
    at::Tensor prices;
  };
  // Collective. On the CPU errors of the scores are thrown here.
  Result forward(const Arguments& arguments);

  struct Gradients {
    at::Tensor tokens, earlier;          // zeros where the output does not depend on it
    std::vector<at::Tensor> parameters;  // the caller's from now on
  };
  // Of the last forward(), which kept its graph; once. Collective. Those of experts are the sum
  // over all workers' tokens, divided by the number of workers: others are averaged over them
  // later.
  Gradients backward(const at::Tensor& gradient);

 private:
  class Tape;
  void adopt(const Arguments& arguments);
  at::Tensor mean_prices(const at::Tensor& like);
  void let_go();  // of the caller's tensors

  const config::Config config_;
  std::shared_ptr<comm::Communicator> workers_;
  parameters::ParameterTable table_;
  ExpertLayer layer_;
  // Of the last forward() with a graph.
  at::Tensor tokens_, earlier_, output_;
  std::vector<kernels::Parameter> parameters_;
};

}  // namespace ballast::experts
