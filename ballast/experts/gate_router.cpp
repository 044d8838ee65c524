// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/gate_router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ballast/experts/expert_ranks.h"
#include "ballast/experts/gate_choices.h"
#include "ballast/experts/routing_sums.h"
#include "ballast/kernels/parallel_ranges.h"
#include "ballast/system/error.h"
#include "ballast/system/random.h"

namespace ballast::experts {
namespace {

using at::Tensor;

// The Switch paper's: logits of a fresh gate are small, and training is stable.
double gate_deviation(int64_t width) { return std::sqrt(0.1 / static_cast<double>(width)); }

// ceil(factor tokens / experts), but for the rounding of the product; never more than all tokens.
int64_t capacity_of(double factor, int64_t tokens, int64_t experts) {
  const double share = factor * static_cast<double>(tokens) / static_cast<double>(experts);
  const auto places = static_cast<int64_t>(std::ceil(std::min(share, 1e15) * (1 - 1e-12)));
  return std::clamp<int64_t>(places, 1, tokens);
}

}  // namespace

GateRouter::GateRouter(const RouterPlace& place)
    : layer_(place.layer),
      config_(place.config.experts),
      places_{place.config.experts.count, place.workers.size()},
      workers_(place.workers),
      frame_(place, "gate.norm", "gate.weight",
             parameters::Initialization::normal(gate_deviation(place.config.model.width))) {}

Dispatch GateRouter::route(const Tensor& logits, const TokenOrder& /*order*/,
                           const Routing& routing) {
  if (!routing.training && routing.mode != RoutingMode::kGreedy) {
    fail("{} routing is for BASE layers; {} layers route greedily", routing_name(routing.mode),
         config_.router);
  }
  return routing.training ? route_groups(logits, routing) : route_by_choice(logits, routing);
}

Dispatch GateRouter::route_groups(const Tensor& logits, const Routing& routing) {
  const TrainingRoute& route = *routing.training;
  const int64_t groups = local_groups(route);
  const auto [best, probability_sums] = gate_choices(logits, frame_.lengths(logits.scalar_type()),
                                                     groups, config_.experts_of_token());
  Tensor expert = kept_or(best, routing);
  const GateBalance balance =
      gate_balance(expert, probability_sums, balance_scale(expert.size(0) / groups, route));
  const Tensor weights =
      frame_.weights(logits, expert.t(), config_.balance_weight > 0 ? balance.shares : Tensor());
  if (config_.second_expert == config::SecondExpert::kRandom && expert.size(1) > 1)
    expert = draw_second(expert, weights.detach(), routing);
  Dispatch dispatch = dispatch_groups(expert, route);
  dispatch.weights = weights;
  add_seen(sums(logits.device()), SeenGates{.weights = weights,
                                            .expert = expert,
                                            .slot_of_row = dispatch.way.slot_of_row,
                                            .losses = balance.losses,
                                            .experts = places_.experts});
  return dispatch;
}

Dispatch GateRouter::route_by_choice(const Tensor& logits, const Routing& routing) const {
  const Tensor expert = gate_choices(logits, frame_.lengths(logits.scalar_type()), /*groups=*/1,
                                     config_.experts_of_token())
                            .expert;
  if (routing.seen) {
    const Tensor chosen = expert.t().contiguous();  // [K, T]
    routing.seen({layer_, chosen[0], frame_.scores(logits).to(at::kFloat),
                  chosen.size(0) > 1 ? chosen[1] : Tensor()});
  }
  Dispatch dispatch = unlimited(expert);
  dispatch.weights = frame_.weights(logits, expert.t());
  return dispatch;
}

Tensor GateRouter::kept_or(const Tensor& expert, const Routing& routing) const {
  if (routing.tape == nullptr) return expert;
  const TrainingRoute& route = *routing.training;
  const int64_t groups = local_groups(route), of_token = expert.size(1);
  const RouteTape::Key key{route.step, route.micro_step, layer_, workers_.rank() * groups};
  const Tensor kept = routing.tape->replay(key, groups);  // [P, K T/G]
  if (kept.defined()) {
    return kept.to(expert.device(), at::kLong)
        .view({groups, of_token, -1})
        .transpose(1, 2)
        .reshape({-1, of_token});
  }
  routing.tape->record(
      key, expert.view({groups, -1, of_token}).transpose(1, 2).reshape({groups, -1}).to(at::kInt));
  return expert;
}

double GateRouter::balance_scale(int64_t tokens_of_group, const TrainingRoute& route) const {
  // The loss is the mean over the step's groups of weight E sum_e share_e mean_e.
  return config_.balance_weight * static_cast<double>(places_.experts * route.averaged) /
         static_cast<double>(tokens_of_group * route.groups * route.micro_steps);
}

Tensor GateRouter::draw_second(const Tensor& expert, const Tensor& weights,
                               const Routing& routing) const {
  const TrainingRoute& route = *routing.training;
  const int64_t tokens = expert.size(0), first = workers_.rank() * tokens;
  const auto draw = [this, route, tokens, first](uint64_t step) {
    const Tensor host = at::empty({tokens}, at::TensorOptions().dtype(at::kDouble));
    auto* const drawn = host.mutable_data_ptr<double>();
    const uint64_t key = random_bits(route.seed, "second expert", step, route.micro_step);
    kernels::parallel_ranges(tokens, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {  // by the token's place among those of all workers
        const auto place = static_cast<uint64_t>(first + t);
        drawn[t] = RandomStream(key, "layer", static_cast<uint64_t>(layer_), place).uniform();
      }
    });
    return host;
  };
  const Tensor drawn = step::take_input({routing.inputs, route.step, weights.device()}, draw);
  const Tensor is_used = drawn < 2 * weights.select(1, 1), second = expert.select(1, 1);
  return at::stack(
      {expert.select(1, 0), at::where(is_used, second, at::full_like(second, places_.experts))}, 1);
}

Dispatch GateRouter::dispatch_groups(const Tensor& expert, const TrainingRoute& route) const {
  const double capacity = config_.training_capacity();
  if (capacity == 0) return unlimited(expert);
  const int64_t groups = local_groups(route), tokens = expert.size(0) / groups;
  const BlockSlots slots =
      block_slots(expert, {.experts = places_.experts,
                           .groups = groups,
                           .block = capacity_of(capacity, tokens, places_.experts)});
  return dispatch_blocks(places_, slots.slot_of_row, slots.row_of_slot);
}

Dispatch GateRouter::unlimited(const Tensor& expert) const {
  return dispatch_unlimited(workers_, places_.experts, expert.t(),
                            frame_.embeddings().value.scalar_type(), label("expert counts"));
}

}  // namespace ballast::experts
