// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/assigner.h"
#include "ballast/experts/router.h"
#include "ballast/kernels/parameter.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast {

// The paper's: in training a balanced assignment, which no gradient flows through; the output of a
// token's expert is mixed in by sigmoid(h . w_e), where the expert is.
class BaseRouter : public Router {
 public:
  // Declares layer.LAYER.expert_embeddings. REQUIRES: the workers divide the experts, and outlive
  // this.
  BaseRouter(const Config& config, int64_t layer, ParameterTable& table, Communicator& workers);

  Dispatch route(const at::Tensor& tokens, const Routing& routing) override;
  at::Tensor at_experts(const RoutedRows& routed, const ExpertStack& experts,
                        const Routing& routing) const override;
  at::Tensor at_tokens(const at::Tensor& tokens, const at::Tensor& back,
                       const Dispatch& dispatch) const override;
  // A single group is the whole batch already: a shuffle would only reorder it.
  bool shuffles(const Routing& routing) const override {
    return routing.training && routing.training->shuffle && routing.training->groups > 1;
  }
  PriceAverage* prices() const override { return prices_.get(); }
  double largest_gap(const RoutingStats& stats) const override;

 private:
  Parameter own_embeddings() const;                       // [E / workers, D] of the experts here
  at::Tensor affinities(const at::Tensor& tokens) const;  // [T, E] fp32
  Dispatch route_groups(const at::Tensor& scores, const Routing& routing);
  Dispatch route_by_choice(const at::Tensor& scores, const Routing& routing);
  at::Tensor balanced_choice(const at::Tensor& scores, const at::Tensor& counted);  // [T] int64
  TensorAssignment assign(const at::Tensor& scores, const Routing& routing);
  void observe(const at::Tensor& scores, const TensorAssignment& result);

  const int64_t layer_;
  const ExpertPlaces places_;
  const Parameter& expert_embeddings_;  // [E, D]
  Communicator& workers_;
  // Recorded steps know the memory of the first, which tokens of another number would move.
  Assigner assigner_, evaluating_;
  std::unique_ptr<PriceAverage> prices_;
};

}  // namespace ballast
