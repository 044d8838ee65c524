// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "ballast/experts/expert_stack.h"
#include "ballast/experts/routing.h"
#include "ballast/experts/routing_stats.h"
#include "ballast/experts/row_exchange.h"

namespace ballast {

// Where the tokens of this worker go.
struct Routes {
  Dispatch dispatch;
  at::Tensor weights = {};  // [T, K] of each token's experts, with their gradient; undefined: the
                            // gate stands at the expert
};

// Decides for one layer which experts each token goes to, and how much of their outputs it takes.
class Router {
 public:
  virtual ~Router() = default;

  // tokens [T, D], after the shuffle where there is one. Collective.
  virtual Routes route(const at::Tensor& tokens, const Routing& routing) = 0;
  // Where the experts are: what they make of these rows, for from_experts.
  virtual at::Tensor at_experts(const RowsAtExperts& arrived, const ExpertStack& experts,
                                const Routing& routing) const = 0;
  // Where the tokens are: tokens [T, D] and what from_experts brought back -> [T, D].
  virtual at::Tensor at_tokens(const at::Tensor& tokens, const at::Tensor& back,
                               const Routes& routes) const = 0;
  virtual bool shuffles(const Routing& routing) const = 0;

  // The average of the solver's prices in training, less their mean: [E] float64 on the CPU, zeros
  // before the first; what priced routing subtracts, and where the solver starts. [0]: a gate.
  virtual const at::Tensor& prices() const = 0;
  virtual void set_prices(const at::Tensor& prices) = 0;

  // What was observed in training since the last call, by this worker; nothing waits for a GPU.
  RoutingStats take_stats() { return std::exchange(stats_, RoutingStats()); }
  // The largest (dual - primal) / max(|primal|, |dual|) of its assignments; waits for the device.
  // UserError: one of them is not valid.
  virtual double largest_gap(const RoutingStats& stats) const = 0;

 protected:
  RoutingStats stats_;
};

}  // namespace ballast
