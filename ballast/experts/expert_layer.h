// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/expert_stack.h"
#include "ballast/experts/router.h"
#include "ballast/experts/routing.h"
#include "ballast/experts/shared_expert.h"
#include "ballast/experts/shuffle.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::experts {

// A layer of sparse experts: BASE, Sparsely Gated or Switch, which differ in their router alone.
// The experts are divided among the workers; everything else is on all of them.
class ExpertLayer {
 public:
  // `place`: the last block before it, counted from 1; its parameters are called layer.PLACE.*.
  // `hops`: of these workers; null: rows go straight. REQUIRES: the workers divide the experts, and
  // outlive this.
  ExpertLayer(const config::Config& config, int64_t place, parameters::ParameterTable& table,
              comm::Communicator& workers, std::shared_ptr<const comm::MachineHops> hops = nullptr);

  // This worker's tokens h [T, D] -> h + sum over its experts e of gate_e(h) f_e(h), and what the
  // shared expert adds where there is one; a token that has no expert stays as it is. `earlier` [T,
  // D]: the same tokens before the last block, which the router reads with look-ahead; undefined:
  // there is no block before. Collective, also backward. In training groups divide each worker's
  // tokens. routing.watch: REQUIRES that it is in the part kExperts, and leaves it there.
  at::Tensor forward(const at::Tensor& tokens, const Routing& routing,
                     const at::Tensor& earlier = {});
  // What forward() does once the router has decided: tokens [T, D] that are here after the shuffle
  // -> [T, D], without the shared expert. Where the layer norms they come normed, and what experts
  // add to the token is given.
  at::Tensor forward_routed(const at::Tensor& tokens, const Dispatch& dispatch,
                            const Routing& routing) const;

  // Seconds this worker has spent moving rows, or waiting for them, since the last call:
  // take_all_to_all_seconds() of its workers.
  double take_exchange_seconds() const;

  int64_t place() const { return place_; }
  const std::string& name() const { return name_; }  // "layer.6"
  int64_t experts() const { return config_.count; }  // of all workers
  bool looks_ahead() const { return config_.look_ahead; }
  int64_t experts_of_token() const { return config_.experts_of_token(); }
  Router& router() { return *router_; }
  const Router& router() const { return *router_; }

 private:
  // Whether the layer norms tokens once for all experts, which then give what is to be added.
  bool norms() const { return config_.norm == config::ExpertNorm::kLayer; }
  // The tokens as the router reads them; `mix`: the shuffle that is still before them.
  Dispatch route(const at::Tensor& read, const Shuffle& mix, const Routing& routing);
  Shuffle shuffle(const at::Tensor& tokens, const Routing& routing) const;
  Travel travel() const { return {workers_, hops_.get()}; }
  // The same as forward_routed(), while part of the tokens is under way.
  at::Tensor forward_in_chunks(const at::Tensor& tokens, const Dispatch& dispatch,
                               const Routing& routing) const;
  at::Tensor at_tokens(const at::Tensor& tokens, const at::Tensor& back,
                       const Dispatch& dispatch) const;
  // Tells of rows that are not even what two hops must know. Collective.
  void complete(RowExchange& way) const;
  comm::Label label(const char* purpose) const { return {purpose, static_cast<int>(place_)}; }

  const int64_t place_;
  const std::string name_;
  const config::ExpertsConfig config_;
  comm::Communicator& workers_;
  const std::shared_ptr<const comm::MachineHops> hops_;
  const kernels::NormForm form_;
  // Of the tokens, for the experts and a router that does not look ahead; undefined: they norm.
  const kernels::Parameter &norm_, &norm_bias_;  // [D]
  std::unique_ptr<Router> router_;
  ExpertStack experts_;
  std::optional<SharedExpert> shared_;
};

}  // namespace ballast::experts
