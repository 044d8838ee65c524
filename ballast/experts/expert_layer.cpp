// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_layer.h"

#include "ballast/experts/dispatch.h"
#include "ballast/experts/shuffle.h"
#include "ballast/parameters/weight_deviation.h"

namespace ballast {

using at::Tensor;

namespace {

// Between the blocks a fresh layer is the identity; what stands for a feed-forward starts as one.
ExpertShape shape_of(const Config& config, const Communicator& workers) {
  const int64_t local = config.experts.count / workers.size();
  return {.width = config.model.width,
          .hidden = config.model.feed_forward_width(),
          .sublayers = config.experts.sublayers_of_layer(),
          .first = workers.rank() * local,
          .count = local,
          .down_deviation = config.experts.replaces_feed_forwards()
                                ? residual_deviation(config.model.layers)
                                : 0.0};
}

}  // namespace

ExpertLayer::ExpertLayer(const Config& config, int64_t place, ParameterTable& table,
                         Communicator& workers)
    : place_(place),
      name_("layer." + std::to_string(place)),
      config_(config.experts),
      workers_(workers),
      router_(make_router(config, place, table, workers)),
      experts_(shape_of(config, workers), name_, table) {}

Tensor ExpertLayer::forward(const Tensor& tokens, const Routing& routing) {
  StepWatch* const watch = routing.watch;
  const std::optional<RowExchange> mix = shuffle(tokens, routing);
  const Tensor judged =
      pass_into(StepPart::kAssignment,
                mix ? exchange(workers_, tokens, *mix, label("shuffle"), watch) : tokens, watch);
  const Dispatch dispatch = router_->route(judged, routing);
  const Tensor mixed = pass_into(StepPart::kExperts, judged, watch);  // [T, D]
  const Tensor out = forward_routed(mixed, dispatch, routing);        // [T, D]
  return mix ? exchange_back(workers_, out, *mix, label("shuffle back"), watch) : out;
}

Tensor ExpertLayer::forward_routed(const Tensor& tokens, const Dispatch& dispatch,
                                   const Routing& routing) const {
  StepWatch* const watch = routing.watch;
  const RoutedRows routed = to_experts(workers_, tokens, dispatch, label("to experts"), watch);
  const Tensor gated = router_->at_experts(routed, experts_, routing);
  const Tensor back = from_experts(workers_, gated, dispatch, label("from experts"), watch);
  return router_->at_tokens(tokens, back, dispatch);
}

std::optional<RowExchange> ExpertLayer::shuffle(const Tensor& tokens,
                                                const Routing& routing) const {
  if (!router_->shuffles(routing)) return std::nullopt;
  const TrainingRoute& route = *routing.training;
  const ShuffleShape shape{.groups = route.groups,
                           .tokens_of_group = tokens.size(0) * workers_.size() / route.groups,
                           .rank = workers_.rank(),
                           .workers = workers_.size()};
  return shuffle_way(route, place_, shape, {routing.inputs, route.step, tokens.device()});
}

}  // namespace ballast
