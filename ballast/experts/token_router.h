// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/routing.h"
#include "ballast/experts/routing_stats.h"
#include "ballast/experts/row_exchange.h"
#include "ballast/kernels/parameter.h"
#include "ballast/router/assign.h"
#include "ballast/router/status_watch.h"

namespace ballast {

// Decides for one layer which expert each token goes to. No gradient flows through that.
class TokenRouter {
 public:
  // REQUIRES: expert_embeddings [E, D] and workers outlive this.
  TokenRouter(const ExpertsConfig& config, int64_t layer, const Parameter& expert_embeddings,
              Communicator& workers);

  // tokens [T, D], after the shuffle where there is one. Collective.
  Dispatch route(const at::Tensor& tokens, const Routing& routing);

  // The average of the solver's prices in training, less their mean: [E] float64 on the CPU.
  // Zeros: none yet. What priced routing subtracts, and where the solver starts.
  const at::Tensor& prices() const { return prices_; }
  void set_prices(const at::Tensor& prices);

  // What was observed in training since the last call, by this worker.
  RoutingStats take_stats();

 private:
  at::Tensor affinities(const at::Tensor& tokens) const;  // [T, E] fp32
  Dispatch route_groups(const at::Tensor& scores, const Routing& routing);
  Dispatch route_by_choice(const at::Tensor& scores, const Routing& routing);
  at::Tensor balanced_choice(const at::Tensor& scores, const at::Tensor& counted);  // [T] int64
  TensorAssignment assign(const at::Tensor& scores, const Routing& routing);
  void observe(const at::Tensor& scores, const TensorAssignment& result);
  const at::Tensor& prices_on(at::Device device);

  const int64_t layer_;
  const ExpertPlaces places_;
  const Parameter& expert_embeddings_;
  Communicator& workers_;
  Assigner assigner_;
  StatusWatch status_;  // of the last assignment on a GPU
  at::Tensor prices_, prices_there_;
  bool has_prices_ = false;
  DeviceTimer timer_;
  RoutingStats stats_;
};

}  // namespace ballast
