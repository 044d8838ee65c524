// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "ballast/experts/chunked_dispatch.h"
#include "ballast/experts/decoder_parts.h"
#include "ballast/experts/dispatch.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/parameters/weight_deviation.h"

namespace ballast::experts {

using at::Tensor;

namespace {

// Between the blocks a fresh layer is the identity; what stands for a feed-forward starts as one.
double down_deviation(const config::Config& config) {
  return config.experts.replaces_feed_forwards()
             ? parameters::residual_deviation(config.model.layers)
             : 0.0;
}

ExpertForm form_of(const config::Config& config) {
  return {.activation = activation_of(config.model),
          .norms = config.experts.norm == config::ExpertNorm::kOwn,
          .norm = norm_form_of(config.model)};
}

ExpertShape shape_of(const config::Config& config, const comm::Communicator& workers) {
  const int64_t local = config.experts.count / workers.size();
  return {.width = config.model.width,
          .hidden = config.experts.width_of_expert(config.model),
          .sublayers = config.experts.sublayers_of_layer(),
          .first = workers.rank() * local,
          .count = local,
          .down_deviation = down_deviation(config),
          .form = form_of(config),
          .biases = config.model.has_biases()};
}

SharedExpertShape shape_of_shared(const config::Config& config) {
  return {.width = config.model.width,
          .hidden = config.experts.width_of_shared(config.model),
          .sublayers = config.experts.sublayers_of_layer(),
          .down_deviation = down_deviation(config),
          .form = form_of(config),
          .biases = config.model.has_biases()};
}

const kernels::Parameter& declare_norm(bool wanted, const std::string& name, int64_t width,
                                       parameters::Initialization initialization,
                                       parameters::ParameterTable& table) {
  if (!wanted) return kernels::no_parameter();
  // Each worker has the gradient of the tokens that it brings to the layer, as a router has.
  return table.declare({.name = name,
                        .shape = {width},
                        .initialization = initialization,
                        .owner = parameters::Owner::kRouter});
}

}  // namespace

ExpertLayer::ExpertLayer(const config::Config& config, int64_t place,
                         parameters::ParameterTable& table, comm::Communicator& workers,
                         std::shared_ptr<const comm::MachineHops> hops)
    : place_(place),
      name_("layer." + std::to_string(place)),
      config_(config.experts),
      workers_(workers),
      hops_(std::move(hops)),
      form_(norm_form_of(config.model)),
      norm_(declare_norm(norms(), name_ + ".norm.weight", config.model.width,
                         parameters::Initialization::one(), table)),
      norm_bias_(declare_norm(norms() && form_.takes_mean(), name_ + ".norm.bias",
                              config.model.width, parameters::Initialization::zero(), table)),
      router_(make_router({config, place, table, workers})),
      experts_(shape_of(config, workers), name_, table) {
  if (config_.shared > 0) shared_.emplace(shape_of_shared(config), name_, table);
}

Tensor ExpertLayer::forward(const Tensor& tokens, const Routing& routing, const Tensor& earlier) {
  step::StepWatch* const watch = routing.watch;
  const Shuffle mix = shuffle(tokens, routing);
  const Tensor given =
      norms() ? kernels::layer_norm(tokens, norm_, norm_bias_, form_) : tokens;  // [T, D]
  const Tensor mixed =
      mix.way ? exchange(travel(), given, *mix.way, label("shuffle"), watch) : given;

  const bool ahead = config_.look_ahead && earlier.defined();
  const Tensor read = step::pass_into(step::StepPart::kAssignment, ahead ? earlier : mixed, watch);
  Dispatch dispatch = route(read, ahead ? mix : Shuffle{.order = mix.order}, routing);
  complete(dispatch.way);
  const Tensor entering =
      step::pass_into(step::StepPart::kExperts, ahead ? mixed : read, watch);  // [T, D]
  const Tensor out = forward_routed(entering, dispatch, routing);              // [T, D]

  const Tensor home =
      mix.way ? exchange_back(travel(), out, *mix.way, label("shuffle back"), watch) : out;
  const Tensor all = shared_ ? home + shared_->forward(given) : home;
  return norms() ? tokens + all : all;
}

Tensor ExpertLayer::forward_routed(const Tensor& tokens, const Dispatch& dispatch,
                                   const Routing& routing) const {
  if (workers_.size() > 1 && config_.chunks > 1 && dispatch.way.is_even)
    return forward_in_chunks(tokens, dispatch, routing);
  step::StepWatch* const watch = routing.watch;
  const RoutedRows routed = to_experts(travel(), tokens, dispatch, label("to experts"), watch);
  const Tensor gated = router_->at_experts(routed, experts_, routing);
  const Tensor back = from_experts(travel(), gated, dispatch, label("from experts"), watch);
  return at_tokens(tokens, back, dispatch);
}

Tensor ExpertLayer::forward_in_chunks(const Tensor& tokens, const Dispatch& dispatch,
                                      const Routing& routing) const {
  const ChunkedDispatch chunked =
      in_chunks({config_.count, workers_.size()}, dispatch, config_.chunks);
  // Backward starts with the last chunk. So that one may write gradients, and the others add.
  Routing adding = routing;
  adding.gradients = MatrixGradients::kAdded;
  const auto compute = [&](const RoutedRows& rows, bool is_last) {
    return router_->at_experts(rows, experts_, is_last ? routing : adding);
  };
  const Tensor back = through_experts(workers_, tokens, chunked, compute, label("to experts"),
                                      label("from experts"), routing.watch);
  return at_tokens(tokens, back, chunked.whole);
}

Tensor ExpertLayer::at_tokens(const Tensor& tokens, const Tensor& back,
                              const Dispatch& dispatch) const {
  return router_->at_tokens(norms() ? at::zeros_like(tokens) : tokens, back, dispatch);
}

Dispatch ExpertLayer::route(const Tensor& read, const Shuffle& mix, const Routing& routing) {
  const auto timed = [&](const auto& work) {
    if (!routing.training) return work();
    router_->timer().begin(read.device());
    auto result = work();
    router_->timer().end();
    return result;
  };
  const auto affinities_of_tokens = [&] { return router_->affinities(read); };  // [T, E]
  const auto dispatch_of = [&](const Tensor& affinities) {
    return router_->route(affinities, mix.order, routing);
  };
  // A span's end and the next one's beginning take a GPU some microseconds.
  if (!mix.way) return timed([&] { return dispatch_of(affinities_of_tokens()); });
  const Tensor mixed = exchange(travel(), timed(affinities_of_tokens), *mix.way,
                                label("shuffle affinities"), routing.watch);
  return timed([&] { return dispatch_of(mixed); });
}

Shuffle ExpertLayer::shuffle(const Tensor& tokens, const Routing& routing) const {
  if (!router_->shuffles(routing)) return {};
  const TrainingRoute& route = *routing.training;
  const ShuffleShape shape{.groups = route.groups,
                           .tokens_of_group = tokens.size(0) * workers_.size() / route.groups,
                           .rank = workers_.rank(),
                           .workers = workers_.size()};
  const step::InputOf input{routing.inputs, route.step, tokens.device()};
  Shuffle mix = routing.shuffles != nullptr ? routing.shuffles->of(route, place_, shape, input)
                                            : shuffle_of(route, place_, shape, input);
  if (hops_ == nullptr || !mix.way) return mix;
  const ShuffleParts parts(shape);
  for (const int neighbour : hops_->neighbours()) {
    const GroupRange own = shape.groups_of(neighbour);
    comm::RowsOfWorker send, receive;
    for (int64_t worker = 0; worker < shape.workers; ++worker) {
      send.push_back(parts.tokens(own, shape.groups_of(worker)));
      receive.push_back(parts.tokens(shape.groups_of(worker), own));
    }
    mix.way->of_machine.send.push_back(send);
    mix.way->of_machine.receive.push_back(receive);
  }
  return mix;
}

void ExpertLayer::complete(RowExchange& way) const {
  if (hops_ != nullptr && !way.is_even)
    way.of_machine = hops_->gather(way.send, way.receive, label("rows of a machine"));
}

double ExpertLayer::take_exchange_seconds() const {
  const auto place = static_cast<int>(place_);
  return workers_.take_all_to_all_seconds(place) +
         (hops_ != nullptr ? hops_->take_all_to_all_seconds(place) : 0);
}

}  // namespace ballast::experts
