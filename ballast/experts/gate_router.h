// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/router.h"
#include "ballast/experts/router_frame.h"

namespace ballast::experts {

// A gate over the experts, in the frame that the config says: softmax of LayerNorm(h) W^T in the
// papers. Switch: each token goes to the best expert, weighted by its probability. Sparsely Gated:
// to the two best, weights renormalised to sum 1. Of equal experts the one with the lower number is
// better.
//
// In training an expert takes at most ceil(capacity T / E) tokens from a routing group of T: first
// choices before second ones, each in the order of tokens. A token that finds no place goes on
// without that expert, and no other expert gets its weight. Outside of training there is no limit.
//
// The balance loss is weight E sum_e (share of first choices of e) (mean probability of e),
// averaged over the groups and micro-steps of a step. Its gradient is added on the way back.
class GateRouter : public Router {
 public:
  // Declares gate.weight, and gate.norm.* where features are normed.
  explicit GateRouter(const RouterPlace& place);

  at::Tensor affinities(const at::Tensor& tokens) const override {
    return frame_.affinities(tokens);
  }
  Dispatch route(const at::Tensor& logits, const TokenOrder& order,
                 const Routing& routing) override;

 private:
  // Experts are [T, K] int64, best first.
  Dispatch route_groups(const at::Tensor& logits, const Routing& routing);
  Dispatch route_by_choice(const at::Tensor& logits, const Routing& routing) const;
  // Those that were kept, or these, which are kept then.
  at::Tensor kept_or(const at::Tensor& expert, const Routing& routing) const;
  // The same experts, some second ones left out: the number of experts stands for none.
  at::Tensor draw_second(const at::Tensor& expert, const at::Tensor& weights,
                         const Routing& routing) const;
  Dispatch dispatch_groups(const at::Tensor& expert, const TrainingRoute& route) const;
  Dispatch unlimited(const at::Tensor& expert) const;
  // What the balance loss of a group is multiplied by for its gradient by a token's probability.
  double balance_scale(int64_t tokens_of_group, const TrainingRoute& route) const;
  int64_t local_groups(const TrainingRoute& route) const { return route.groups / workers_.size(); }
  comm::Label label(const char* purpose) const { return {purpose, static_cast<int>(layer_)}; }

  const int64_t layer_;
  const config::ExpertsConfig config_;
  const ExpertPlaces places_;
  comm::Communicator& workers_;
  const RouterFrame frame_;
};

}  // namespace ballast::experts
