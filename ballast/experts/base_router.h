// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/assigner.h"
#include "ballast/experts/router.h"
#include "ballast/experts/router_frame.h"

namespace ballast::experts {

// Balanced assignment, which no gradient flows through: in training each expert gets equally many
// tokens of each routing group. A token that goes to K experts takes part in K assignments, one
// after another, each without the experts that it has already.
//
// In the paper's frame the output of a token's expert is mixed in by sigmoid(h . w_e) where the
// expert is, from what is there. In any other the weights are made where the token is, and its
// experts' outputs are mixed there.
class BaseRouter : public Router {
 public:
  // Declares expert_embeddings, and router_norm.* where features are normed.
  explicit BaseRouter(const RouterPlace& place);

  at::Tensor affinities(const at::Tensor& tokens) const override;
  Dispatch route(const at::Tensor& affinities, const TokenOrder& order,
                 const Routing& routing) override;
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
  Dispatch route_groups(const at::Tensor& affinities, const TokenOrder& order,
                        const Routing& routing);
  Dispatch route_by_choice(const at::Tensor& affinities, const Routing& routing);
  // The experts of each token, int64, best first.
  at::Tensor best_choice(at::Tensor scores) const;  // [T, E] -> [K, T]
  at::Tensor balanced_choice(const at::Tensor& scores, const at::Tensor& counted);  // [K, T]
  // Scores [P, T/G, E] -> the K assignments of each of these groups.
  std::vector<TensorAssignment> assign(const at::Tensor& scores, const Routing& routing);
  at::Tensor start_prices(at::Device device, const Routing& routing);  // undefined: none
  std::vector<TensorAssignment> solve(const at::Tensor& scores, const at::Tensor& start_prices);
  // best [T]: each token's best expert, in the order of the groups; weights [T, K].
  void observe(const at::Tensor& best, const std::vector<TensorAssignment>& rounds,
               const at::Tensor& weights);
  kernels::Parameter own_embeddings() const;  // [E / workers, D] of the experts here

  const int64_t layer_;
  const ExpertPlaces places_;
  const int64_t of_token_;  // K
  const bool gates_at_experts_;
  const RouterFrame frame_;
  comm::Communicator& workers_;
  // Recorded steps know the memory of the first, which tokens of another number would move.
  Assigner assigner_, assigner_of_others_, evaluating_, evaluating_others_;
  std::unique_ptr<PriceAverage> prices_;
};

}  // namespace ballast::experts
