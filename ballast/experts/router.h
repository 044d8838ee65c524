// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/dispatch.h"
#include "ballast/experts/expert_stack.h"
#include "ballast/experts/price_average.h"
#include "ballast/experts/routing.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::experts {

// The layer that a router is made for. REQUIRES: the workers divide the experts, and outlive it.
struct RouterPlace {
  const config::Config& config;
  int64_t layer;  // its parameters are called layer.LAYER.*
  parameters::ParameterTable& table;
  comm::Communicator& workers;
};

// Decides for one layer which experts each token goes to, and how much of their outputs it takes.
class Router {
 public:
  virtual ~Router() = default;

  // How much each token is drawn to each expert: tokens [T, D], as the router reads them -> [T, E]
  // fp32, or fp64 for tokens in fp64.
  virtual at::Tensor affinities(const at::Tensor& tokens) const = 0;
  // Affinities [T, E], of tokens that are here after the shuffle. `order`: how a worker that is
  // alone cuts them into groups; of routers that shuffle. Collective.
  virtual Dispatch route(const at::Tensor& affinities, const TokenOrder& order,
                         const Routing& routing) = 0;
  // Where the experts are: what they make of these rows, for from_experts.
  virtual at::Tensor at_experts(const RoutedRows& routed, const ExpertStack& experts,
                                const Routing& routing) const;
  // Where the tokens are: h + sum over its experts of weight (y - h), of tokens h [T, D] and what
  // from_experts brought back. REQUIRES: the dispatch has weights, and slot_of_row [T, K].
  virtual at::Tensor at_tokens(const at::Tensor& tokens, const at::Tensor& back,
                               const Dispatch& dispatch) const;

  // What was observed in training since the last call, by this worker; nothing waits for a GPU.
  step::DeviceTimer& timer() { return stats_.assigning; }  // of affinities and route, in training
  RoutingStats take_stats() { return std::exchange(stats_, RoutingStats()); }

  // Of routers that balance by assignment; others leave these as they are.
  virtual bool shuffles(const Routing&) const { return false; }
  virtual PriceAverage* prices() const { return nullptr; }
  // The largest (dual - primal) / max(|primal|, |dual|) of its assignments; waits for the device.
  // UserError: one of them is not valid.
  virtual double largest_gap(const RoutingStats&) const { return 0; }

 protected:
  // The sums of stats_, zeros at first; `prices`: how many there are of these.
  const at::Tensor& sums(at::Device device, int64_t prices = 0);

  RoutingStats stats_;
};

// The router that config.experts.router names. It declares its parameters.
std::unique_ptr<Router> make_router(const RouterPlace& place);

}  // namespace ballast::experts
