// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/base_router.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ballast/experts/expert_ranks.h"

namespace ballast {
namespace {

using at::Tensor;

constexpr double kEmbeddingGain = 0.1;  // of the authors' code

// Where training diverges scores are not finite: nor is the step's loss, and it is skipped.
AssignOptions options_of(const ExpertsConfig& config) {
  return {.solver = parse_solver_kind(name_of(config.solver)),
          .non_finite = NonFinite::kLowest,
          .max_work = kBoundedCudaWork,  // no step waits for ever on scores that have collapsed
          .threads = static_cast<size_t>(at::get_num_threads()),
          .self_check = config.self_check};
}

// An assignment known by its experts alone, as a solver would have given it.
TensorAssignment assignment_of(const Tensor& expert_of_token, int64_t experts) {
  const Tensor expert = expert_of_token.to(at::kLong);  // [P, T/G]
  const auto [rank, loads] = expert_ranks(expert, experts);
  TensorAssignment result;
  result.expert_of_token = expert_of_token;
  result.place_of_token = rank + (loads.cumsum(1) - loads).gather(1, expert);
  result.loads = loads;
  return result;
}

double relative_gap(const AssignmentStatus& status) {
  const double size = std::max(std::abs(status.primal), std::abs(status.dual));
  return size > 0 ? status.gap / size : 0;
}

}  // namespace

BaseRouter::BaseRouter(const Config& config, int64_t layer, ParameterTable& table,
                       Communicator& workers)
    : layer_(layer),
      places_{config.experts.count, workers.size()},
      expert_embeddings_(
          table.declare({.name = fmt::format("layer.{}.expert_embeddings", layer),
                         .shape = {config.experts.count, config.model.width},
                         .initialization = Initialization::orthogonal(kEmbeddingGain),
                         .owner = Owner::kRouter})),
      workers_(workers),
      assigner_(options_of(config.experts)),
      evaluating_(options_of(config.experts)),
      prices_(std::make_unique<PriceAverage>(config.experts.count)) {}

Parameter BaseRouter::own_embeddings() const {
  const auto own = [&](const Tensor& all) {
    return all.defined() ? all.narrow(0, workers_.rank() * places_.local(), places_.local()) : all;
  };
  return {own(expert_embeddings_.value), own(expert_embeddings_.gradient)};
}

Tensor BaseRouter::at_experts(const RoutedRows& routed, const ExpertStack& experts,
                              const Routing& routing) const {
  return experts.gated(routed, own_embeddings(), routing.gradients);
}

Tensor BaseRouter::at_tokens(const Tensor&, const Tensor& back, const Dispatch&) const {
  return back;
}

Tensor BaseRouter::affinities(const Tensor& tokens) const {
  // In half precision many affinities would be equal: those are computed in fp32.
  const at::ScalarType dtype = tokens.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::mm(tokens.to(dtype), expert_embeddings_.value.to(dtype).t()).to(at::kFloat);
}

Dispatch BaseRouter::route(const Tensor& tokens, const Routing& routing) {
  const at::NoGradGuard no_grad;
  if (routing.training) stats_.assigning.begin(tokens.device());
  const Tensor scores = affinities(tokens.detach());  // [T, E]
  Dispatch dispatch =
      routing.training ? route_groups(scores, routing) : route_by_choice(scores, routing);
  if (routing.training) stats_.assigning.end();
  return dispatch;
}

Dispatch BaseRouter::route_groups(const Tensor& scores, const Routing& routing) {
  const int64_t local = routing.training->groups / workers_.size();
  const Tensor of_groups = scores.view({local, -1, places_.experts});  // [P, T/G, E]
  const TensorAssignment result = assign(of_groups, routing);
  observe(of_groups, result);
  return dispatch_balanced(places_, result.expert_of_token, result.place_of_token, result.loads);
}

TensorAssignment BaseRouter::assign(const Tensor& scores, const Routing& routing) {
  const TrainingRoute& route = *routing.training;
  const int64_t groups = scores.size(0);
  const RouteTape::Key key{route.step, route.micro_step, layer_, workers_.rank() * groups};
  if (routing.tape != nullptr) {
    const Tensor kept = routing.tape->replay(key, groups);
    if (kept.defined()) return assignment_of(kept.to(scores.device()), places_.experts);
  }
  AssignInputs inputs;
  // On a GPU always, since a recorded step cannot tell: zeros are no start there.
  if (!prices_->is_zero() || !scores.is_cpu()) {
    inputs.start_prices =
        prices_->on(scores.device()).expand({groups, places_.experts}).contiguous();
  }
  TensorAssignment result = assigner_.assign(scores, inputs);
  if (routing.tape != nullptr) routing.tape->record(key, result.expert_of_token);
  return result;
}

void BaseRouter::observe(const Tensor& scores, const TensorAssignment& result) {
  const Tensor matches = (scores.argmax(2) == result.expert_of_token).sum();
  add_to(stats_.greedy_matches, matches);
  stats_.tokens += result.expert_of_token.numel();
  if (!result.prices.defined()) return;  // replayed
  const Tensor prices = (result.prices - result.prices.mean(1, /*keepdim=*/true)).sum(0);  // [E]
  add_to(stats_.price_sum, prices);
  stats_.groups += scores.size(0);
  stats_.statuses.push_back(result.status);
}

double BaseRouter::largest_gap(const RoutingStats& stats) const {
  double largest = 0;
  for (const Tensor& bytes : stats.statuses) {
    const auto statuses = status_blocks(bytes.cpu());
    assigner_.check(statuses);
    for (const AssignmentStatus& status : statuses)
      largest = std::max(largest, relative_gap(status));
  }
  return largest;
}

Dispatch BaseRouter::route_by_choice(const Tensor& affinities, const Routing& routing) {
  Tensor scores = affinities, expert_of_token;
  if (routing.mode == RoutingMode::kBalanced) {
    expert_of_token = balanced_choice(scores, routing.counted);
  } else {
    if (routing.mode == RoutingMode::kPriced)
      scores = scores - prices_->on(scores.device()).to(at::kFloat);
    expert_of_token = scores.argmax(1);
  }
  if (routing.seen) routing.seen({layer_, expert_of_token, scores});
  return dispatch_by_counts(workers_, places_.experts, expert_of_token,
                            {"expert counts", static_cast<int>(layer_)});
}

Tensor BaseRouter::balanced_choice(const Tensor& scores, const Tensor& counted) {
  if (!counted.defined()) return evaluating_.assign(scores).expert_of_token.to(at::kLong);
  const Tensor rows = counted.nonzero().view({-1});
  const Tensor chosen = evaluating_.assign(scores.index_select(0, rows)).expert_of_token;
  return scores.argmax(1).index_copy_(0, rows, chosen.to(at::kLong));
}

}  // namespace ballast
