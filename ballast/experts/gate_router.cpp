// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/gate_router.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/experts/expert_ranks.h"
#include "ballast/kernels/parallel_ranges.h"
#include "ballast/system/error.h"
#include "ballast/system/random.h"

namespace ballast::experts {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// The Switch paper's: logits of a fresh gate are small, and training is stable.
double gate_deviation(int64_t width) { return std::sqrt(0.1 / static_cast<double>(width)); }

// Hands x on, and on the way back adds the gradient of a loss that hangs on x beside.
struct AddGradient : torch::autograd::Function<AddGradient> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& gradient) {
    context->save_for_backward({gradient});
    return x.view_as(x);
  }
  static tensor_list backward(AutogradContext* context, const tensor_list& dy) {
    return {dy[0] + context->get_saved_variables()[0], {}};
  }
};

// ceil(factor tokens / experts), but for the rounding of the product; never more than all tokens.
int64_t capacity_of(double factor, int64_t tokens, int64_t experts) {
  const double share = factor * static_cast<double>(tokens) / static_cast<double>(experts);
  const auto places = static_cast<int64_t>(std::ceil(std::min(share, 1e15) * (1 - 1e-12)));
  return std::clamp<int64_t>(places, 1, tokens);
}

}  // namespace

GateRouter::GateRouter(const config::Config& config, int64_t layer,
                       parameters::ParameterTable& table, comm::Communicator& workers)
    : layer_(layer),
      config_(config.experts),
      places_{config.experts.count, workers.size()},
      workers_(workers),
      frame_(
          config, fmt::format("layer.{}.gate.norm", layer),
          {.name = fmt::format("layer.{}.gate.weight", layer),
           .shape = {config.experts.count, config.model.width},
           .initialization = parameters::Initialization::normal(gate_deviation(config.model.width)),
           .owner = parameters::Owner::kRouter,
           .rate = config.experts.router_rate},
          table) {}

Dispatch GateRouter::route(const Tensor& logits, const TokenOrder& /*order*/,
                           const Routing& routing) {
  if (!routing.training && routing.mode != RoutingMode::kGreedy) {
    fail("{} routing is for BASE layers; {} layers route greedily", routing_name(routing.mode),
         config_.router);
  }
  const Tensor scores = frame_.scores(logits);  // [T, E]
  Tensor expert = best_experts(scores, routing);
  const Tensor weights = weights_of(logits, expert, routing);
  Dispatch dispatch;
  if (routing.training) {
    if (config_.second_expert == config::SecondExpert::kRandom && expert.size(0) > 1)
      expert = draw_second(expert, weights.detach(), routing);
    dispatch = dispatch_groups(expert, *routing.training);
    add_to(stats_.gate_sum, weights.detach().select(1, 0).sum(at::kDouble));
  } else {
    if (routing.seen)
      routing.seen(
          {layer_, expert[0], scores.to(at::kFloat), expert.size(0) > 1 ? expert[1] : Tensor()});
    dispatch = unlimited(expert);
  }
  dispatch.weights = weights;
  return dispatch;
}

Tensor GateRouter::best_experts(const Tensor& scores) const {
  const at::NoGradGuard no_grad;
  const Tensor first = scores.argmax(1);  // of equal ones the first
  if (config_.experts_of_token() == 1) return first.unsqueeze(0);
  const Tensor others =
      scores.scatter(1, first.unsqueeze(1), -std::numeric_limits<double>::infinity());
  return at::stack({first, others.argmax(1)});
}

Tensor GateRouter::best_experts(const Tensor& scores, const Routing& routing) const {
  if (!routing.training || routing.tape == nullptr) return best_experts(scores);
  const TrainingRoute& route = *routing.training;
  const int64_t groups = local_groups(route), of_token = config_.experts_of_token();
  const RouteTape::Key key{route.step, route.micro_step, layer_, workers_.rank() * groups};
  const Tensor kept = routing.tape->replay(key, groups);  // [P, K T/G]
  if (kept.defined()) {
    return kept.to(scores.device(), at::kLong)
        .view({groups, of_token, -1})
        .transpose(0, 1)
        .reshape({of_token, -1});
  }
  Tensor expert = best_experts(scores);
  routing.tape->record(
      key, expert.view({of_token, groups, -1}).transpose(0, 1).reshape({groups, -1}).to(at::kInt));
  return expert;
}

Tensor GateRouter::weights_of(const Tensor& logits, const Tensor& expert, const Routing& routing) {
  Tensor probabilities = at::softmax(logits, 1), balance;
  if (routing.training)
    balance = balance_gradient(probabilities.detach(), expert[0], *routing.training);
  if (config_.gate == config::Gate::kSigmoid) {
    if (!balance.defined()) return frame_.weights(logits, expert);
    const Tensor by_logits =
        at::_softmax_backward_data(balance, probabilities.detach(), 1, logits.scalar_type());
    return frame_.weights(AddGradient::apply(logits, by_logits), expert);
  }
  if (balance.defined()) probabilities = AddGradient::apply(probabilities, balance);
  const Tensor chosen = probabilities.gather(1, expert.t());  // [T, K]
  return expert.size(0) == 1 ? chosen : chosen / chosen.sum(1, /*keepdim=*/true);
}

Tensor GateRouter::balance_gradient(const Tensor& probabilities, const Tensor& first,
                                    const TrainingRoute& route) {
  const int64_t groups = local_groups(route), experts = places_.experts;
  const int64_t tokens = first.size(0) / groups;
  const Tensor of_groups = probabilities.view({groups, tokens, experts});
  const Tensor chosen = first.view({groups, tokens});
  const Tensor share =
      at::zeros({groups, experts}, probabilities.options())
          .scatter_add_(1, chosen, at::ones_like(chosen, probabilities.options())) /
      tokens;                                                                              // [P, E]
  const Tensor losses = (share * of_groups.mean(1)).sum(1, false, at::kDouble) * experts;  // [P]
  add_to(stats_.balance_sum, losses.sum());
  stats_.groups += groups;
  stats_.tokens += first.size(0);
  if (config_.balance_weight == 0) return {};
  // The mean over the step's groups of weight E sum_e share_e mean_e, by a probability of a token.
  const double scale = config_.balance_weight * static_cast<double>(experts) /
                       static_cast<double>(tokens * route.groups * route.micro_steps);
  return (share * scale).unsqueeze(1).expand_as(of_groups).reshape_as(probabilities);
}

Tensor GateRouter::draw_second(const Tensor& expert, const Tensor& weights,
                               const Routing& routing) const {
  const TrainingRoute& route = *routing.training;
  const int64_t tokens = expert.size(1), first = workers_.rank() * tokens;
  const auto draw = [this, route, tokens, first, on_cpu = expert.is_cpu()](uint64_t step) {
    const Tensor host =
        at::empty({tokens}, at::TensorOptions().dtype(at::kDouble).pinned_memory(!on_cpu));
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
  const Tensor is_used = drawn < 2 * weights.select(1, 1);
  return at::stack(
      {expert[0], at::where(is_used, expert[1], at::full_like(expert[1], places_.experts))});
}

Dispatch GateRouter::dispatch_groups(const Tensor& expert, const TrainingRoute& route) {
  const int64_t groups = local_groups(route), of_token = expert.size(0);
  const int64_t tokens = expert.size(1) / groups;
  const Tensor chosen = (expert < places_.experts).sum();
  add_to(stats_.chosen, chosen);
  const double capacity = config_.training_capacity();
  if (capacity == 0) {
    for (Tensor* none : {&stats_.dropped, &stats_.passed_by})
      add_to(*none, at::zeros({}, chosen.options()));
    return unlimited(expert);
  }
  const Tensor choice = expert.view({of_token, groups, tokens}).transpose(0, 1).contiguous();
  const Tensor rank = expert_ranks(choice.view({groups, -1}), places_.experts).rank.view_as(choice);
  const int64_t block = capacity_of(capacity, tokens, places_.experts);
  const Tensor has_place = (rank < block).logical_and_(choice < places_.experts);  // [P, K, T/G]
  add_to(stats_.dropped, chosen - has_place.sum());
  add_to(stats_.passed_by, has_place.any(1).logical_not_().sum());
  return dispatch_blocks(places_, choice, rank, block);
}

Dispatch GateRouter::unlimited(const Tensor& expert) const {
  return dispatch_unlimited(workers_, places_.experts, expert,
                            frame_.embeddings().value.scalar_type(), label("expert counts"));
}

Tensor GateRouter::at_experts(const RoutedRows& routed, const ExpertStack& experts,
                              const Routing& routing) const {
  return experts.forward(routed, routing.gradients);
}

Tensor GateRouter::at_tokens(const Tensor& tokens, const Tensor& back,
                             const Dispatch& dispatch) const {
  return mix_at_tokens(tokens, back, dispatch);
}

}  // namespace ballast::experts
