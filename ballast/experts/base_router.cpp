// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/base_router.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ballast/experts/balanced_slots.h"
#include "ballast/experts/expert_ranks.h"
#include "ballast/experts/routing_scores.h"
#include "ballast/experts/routing_sums.h"

namespace ballast::experts {
namespace {

using at::Tensor;

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Where training diverges scores are not finite: nor is the step's loss, and it is skipped.
AssignOptions options_of(const config::ExpertsConfig& config, assignment::NonFinite non_finite,
                         double gap) {
  return {.solver = assignment::parse_solver_kind(config::name_of(config.solver)),
          .non_finite = non_finite,
          .gap = gap,
          // No step waits for ever on scores that have collapsed.
          .max_work = assignment::kBoundedCudaWork,
          .threads = static_cast<size_t>(at::get_num_threads()),
          .self_check = config.self_check};
}

// An assignment known by its experts alone, as a solver would have given it.
TensorAssignment assignment_of(const Tensor& expert_of_token, int64_t experts) {
  const Tensor expert = expert_of_token.to(at::kLong);  // [P, T/G]
  const auto [rank, loads] = expert_ranks(expert, experts);
  TensorAssignment result;
  result.expert_of_token = expert_of_token.to(at::kInt);
  result.place_of_token = (rank + (loads.cumsum(1) - loads).gather(1, expert)).to(at::kInt);
  result.loads = loads.to(at::kInt);
  return result;
}

// [.., T, E] without the experts [.., T] that tokens have already.
Tensor without(const Tensor& scores, const Tensor& expert) {
  return scores.scatter(-1, expert.to(at::kLong).unsqueeze(-1), kNever);
}

// What the rounds have of one kind, one after another.
Tensor stacked(const std::vector<TensorAssignment>& rounds, Tensor TensorAssignment::*part) {
  if (rounds.size() == 1) return (rounds.front().*part).unsqueeze(0);
  std::vector<Tensor> parts;
  for (const TensorAssignment& round : rounds) parts.push_back(round.*part);
  return at::stack(parts);
}

}  // namespace

BaseRouter::BaseRouter(const RouterPlace& place)
    : layer_(place.layer),
      places_{place.config.experts.count, place.workers.size()},
      of_token_(place.config.experts.experts_of_token()),
      gates_at_experts_(place.config.experts.gates_at_experts()),
      frame_(place, "router_norm", "expert_embeddings",
             parameters::Initialization::orthogonal(place.config.experts.embedding_gain)),
      workers_(place.workers),
      assigner_(options_of(place.config.experts, assignment::NonFinite::kLowest,
                           place.config.experts.assignment_gap)),
      assigner_of_others_(options_of(place.config.experts, assignment::NonFinite::kForbid,
                                     place.config.experts.assignment_gap)),
      evaluating_(options_of(place.config.experts, assignment::NonFinite::kLowest, 0)),
      evaluating_others_(options_of(place.config.experts, assignment::NonFinite::kForbid, 0)),
      prices_(std::make_unique<PriceAverage>(place.config.experts.count)) {}

kernels::Parameter BaseRouter::own_embeddings() const {
  const auto own = [&](const Tensor& all) {
    return all.defined() ? all.narrow(0, workers_.rank() * places_.local(), places_.local()) : all;
  };
  return {own(frame_.embeddings().value), own(frame_.embeddings().gradient)};
}

Tensor BaseRouter::at_experts(const RoutedRows& routed, const ExpertStack& experts,
                              const Routing& routing) const {
  if (gates_at_experts_) return experts.gated(routed, own_embeddings(), routing.gradients);
  return Router::at_experts(routed, experts, routing);
}

Tensor BaseRouter::at_tokens(const Tensor& tokens, const Tensor& back,
                             const Dispatch& dispatch) const {
  return gates_at_experts_ ? back : Router::at_tokens(tokens, back, dispatch);
}

Tensor BaseRouter::affinities(const Tensor& tokens) const {
  if (!gates_at_experts_) return frame_.affinities(tokens);
  const at::NoGradGuard no_grad;  // the gradient is that of the gate, at the expert
  return frame_.affinities(tokens.detach());
}

Dispatch BaseRouter::route(const Tensor& affinities, const TokenOrder& order,
                           const Routing& routing) {
  return routing.training ? route_groups(affinities, order, routing)
                          : route_by_choice(affinities, routing);
}

Dispatch BaseRouter::route_groups(const Tensor& affinities, const TokenOrder& order,
                                  const Routing& routing) {
  const int64_t local = routing.training->groups / workers_.size();
  const auto [scores, best] = routing_scores(affinities, frame_.lengths(affinities.scalar_type()),
                                             order.row_of_position);  // [T, E], [T]
  const std::vector<TensorAssignment> rounds =
      assign(scores.view({local, -1, places_.experts}), routing);
  const BalancedSlots slots =
      balanced_slots({.expert_of_token = stacked(rounds, &TensorAssignment::expert_of_token),
                      .place_of_token = stacked(rounds, &TensorAssignment::place_of_token),
                      .loads = stacked(rounds, &TensorAssignment::loads)},
                     order.row_of_position);
  const Tensor weights = frame_.weights(affinities, slots.expert_of_row.t());  // [T, K]
  observe(best, rounds, weights);
  // Gates at the expert mix rows there, which then return to their tokens.
  Dispatch dispatch =
      dispatch_blocks(places_, gates_at_experts_ ? slots.slot_of_row.squeeze(1) : slots.slot_of_row,
                      slots.row_of_slot);
  if (!gates_at_experts_) dispatch.weights = weights;
  return dispatch;
}

std::vector<TensorAssignment> BaseRouter::assign(const Tensor& scores, const Routing& routing) {
  const TrainingRoute& route = *routing.training;
  const int64_t groups = scores.size(0);
  const RouteTape::Key key{route.step, route.micro_step, layer_, workers_.rank() * groups};
  std::vector<TensorAssignment> rounds;
  if (routing.tape != nullptr) {
    const Tensor kept = routing.tape->replay(key, groups);  // [P, K T/G]
    if (kept.defined()) {
      for (const Tensor& round : kept.to(scores.device()).chunk(of_token_, 1))
        rounds.push_back(assignment_of(round, places_.experts));
      return rounds;
    }
  }
  rounds = solve(scores, start_prices(scores.device(), routing));
  if (routing.tape != nullptr) {
    std::vector<Tensor> chosen;
    for (const TensorAssignment& round : rounds) chosen.push_back(round.expert_of_token);
    routing.tape->record(key, at::cat(chosen, 1));
  }
  return rounds;
}

Tensor BaseRouter::start_prices(at::Device device, const Routing& routing) {
  if (device.is_cpu()) return prices_->is_zero() ? Tensor() : prices_->start();
  // On a GPU always, since a recorded step cannot tell: zeros are no start there.
  if (routing.inputs == nullptr) return prices_->start_on(device);
  return routing.inputs->take([prices = prices_.get()](uint64_t) { return prices->start(); });
}

std::vector<TensorAssignment> BaseRouter::solve(const Tensor& scores, const Tensor& start_prices) {
  const AssignInputs inputs{.start_prices = start_prices};
  std::vector<TensorAssignment> rounds = {assigner_.assign(scores, inputs)};
  Tensor left = scores;
  for (int64_t k = 1; k < of_token_; ++k) {
    if (k == 1) left = at::nan_to_num(scores, 0, 0, 0);
    left = without(left, rounds.back().expert_of_token);
    rounds.push_back(assigner_of_others_.assign(left, inputs));
  }
  return rounds;
}

void BaseRouter::observe(const Tensor& best, const std::vector<TensorAssignment>& rounds,
                         const Tensor& weights) {
  const bool replayed = !rounds.front().prices.defined();
  add_seen(
      sums(best.device(), places_.experts),
      SeenAssignment{
          .weights = weights,
          .best = best,
          .expert = rounds.front().expert_of_token,
          .prices = replayed
                        ? Tensor()
                        : stacked(rounds, &TensorAssignment::prices).view({-1, places_.experts})});
  for (const TensorAssignment& round : rounds)
    if (!replayed) stats_.statuses.push_back(round.status);
}

double BaseRouter::largest_gap(const RoutingStats& stats) const {
  double largest = 0;
  for (const Tensor& bytes : stats.statuses) {
    const auto statuses = status_blocks(bytes.cpu());
    assigner_.check(statuses);
    for (const assignment::AssignmentStatus& status : statuses)
      largest =
          std::max(largest, assignment::relative_gap(status.primal, status.dual, status.blind));
  }
  return largest;
}

Dispatch BaseRouter::route_by_choice(const Tensor& affinities, const Routing& routing) {
  Tensor scores = frame_.scores(affinities).to(at::kFloat), expert;  // [T, E], [K, T]
  if (routing.mode == RoutingMode::kBalanced) {
    expert = balanced_choice(scores, routing.counted);
  } else {
    if (routing.mode == RoutingMode::kPriced)
      scores = scores - prices_->on(scores.device()).to(at::kFloat);
    expert = best_choice(scores);
  }
  if (routing.seen) routing.seen({layer_, expert[0], scores, of_token_ > 1 ? expert[1] : Tensor()});
  const comm::Label label{"expert counts", static_cast<int>(layer_)};
  if (gates_at_experts_) return dispatch_by_counts(workers_, places_.experts, expert[0], label);
  Dispatch dispatch = dispatch_unlimited(workers_, places_.experts, expert,
                                         frame_.embeddings().value.scalar_type(), label);
  dispatch.weights = frame_.weights(affinities, expert);
  return dispatch;
}

Tensor BaseRouter::best_choice(Tensor scores) const {
  std::vector<Tensor> chosen = {scores.argmax(1)};
  while (static_cast<int64_t>(chosen.size()) < of_token_) {
    scores = without(scores, chosen.back());
    chosen.push_back(scores.argmax(1));
  }
  return at::stack(chosen);
}

Tensor BaseRouter::balanced_choice(const Tensor& scores, const Tensor& counted) {
  const Tensor rows = counted.defined() ? counted.nonzero().view({-1}) : Tensor();
  Tensor left = rows.defined() ? scores.index_select(0, rows) : scores;
  std::vector<Tensor> chosen;
  for (int64_t k = 0; k < of_token_; ++k) {
    if (k == 1) left = at::nan_to_num(left, 0, 0, 0);
    if (k > 0) left = without(left, chosen.back());
    chosen.push_back(
        (k == 0 ? evaluating_ : evaluating_others_).assign(left).expert_of_token.to(at::kLong));
  }
  const Tensor balanced = at::stack(chosen);  // [K, counted]
  return rows.defined() ? best_choice(scores).index_copy_(1, rows, balanced) : balanced;
}

}  // namespace ballast::experts
