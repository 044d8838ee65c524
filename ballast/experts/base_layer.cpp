// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/base_layer.h"

#include "ballast/experts/row_exchange.h"
#include "ballast/experts/shuffle.h"
#include "ballast/kernels/expert_gate.h"

namespace ballast {

using at::Tensor;

namespace {

constexpr double kEmbeddingGain = 0.1;  // of the authors' code

ExpertShape shape_of(const Config& config, const Communicator& workers) {
  const int64_t local = config.experts.count / workers.size();
  return {.width = config.model.width,
          .hidden = config.model.feed_forward_width(),
          .sublayers = config.experts.sublayers_of_layer(),
          .first = workers.rank() * local,
          .count = local};
}

}  // namespace

BaseLayer::BaseLayer(const Config& config, int64_t place, ParameterTable& table,
                     Communicator& workers)
    : place_(place),
      name_("layer." + std::to_string(place)),
      workers_(workers),
      expert_embeddings_(
          table.declare({.name = name_ + ".expert_embeddings",
                         .shape = {config.experts.count, config.model.width},
                         .initialization = Initialization::orthogonal(kEmbeddingGain)})),
      experts_(shape_of(config, workers), name_, table),
      router_(config.experts, place, expert_embeddings_, workers) {}

Tensor BaseLayer::forward(const Tensor& tokens, const Routing& routing) {
  const bool shuffles = routing.training && routing.training->shuffle;
  const RowExchange mix = shuffles ? shuffle(tokens, *routing.training) : RowExchange();
  const Tensor mixed =
      shuffles ? exchange(workers_, tokens, mix, label("shuffle")) : tokens;  // [T, D]
  const Dispatch dispatch = router_.route(mixed, routing);
  const std::vector<int64_t>& rows = dispatch.rows_of_expert;

  const Tensor arrived = exchange(workers_, mixed, dispatch.way, label("to experts"));
  const Tensor stacked = experts_.forward(arrived, rows);
  const Tensor gated = gated_residual(arrived, stacked, rows, own_embeddings());
  const Tensor back = exchange_back(workers_, gated, dispatch.way, label("from experts"));

  return shuffles ? exchange_back(workers_, back, mix, label("shuffle back")) : back;
}

RowExchange BaseLayer::shuffle(const Tensor& tokens, const TrainingRoute& route) const {
  const ShuffleShape shape{.groups = route.groups,
                           .tokens_of_group = tokens.size(0) * workers_.size() / route.groups,
                           .rank = workers_.rank(),
                           .workers = workers_.size()};
  return shuffle_way(route, place_, shape, tokens.device());
}

Parameter BaseLayer::own_embeddings() const {
  const int64_t local = expert_embeddings_.value.size(0) / workers_.size();
  const auto own = [&](const Tensor& all) {
    return all.defined() ? all.narrow(0, workers_.rank() * local, local) : all;
  };
  return {own(expert_embeddings_.value), own(expert_embeddings_.gradient)};
}

}  // namespace ballast
