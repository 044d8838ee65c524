// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/layer_contenders.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "ballast/experts/dispatch.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/linear.h"
#include "ballast/parameters/weight_deviation.h"
#include "ballast/step/device_timer.h"
#include "ballast/step/step_clock.h"

namespace ballast::cli {
namespace {

using at::Tensor;

// The deviation of weights like those of a fresh layer; but no projection is zero: products with
// zeros may take less time.
double deviation_of(const parameters::Segment& segment) {
  switch (segment.initialization.kind) {
    case parameters::Initialization::Kind::kNormal:
      return segment.initialization.deviation;
    case parameters::Initialization::Kind::kOrthogonal:
      return segment.initialization.gain / std::sqrt(static_cast<double>(segment.shape.back()));
    default:
      return parameters::kWeightDeviation;
  }
}

// Drawn where they are used: a billion would take the host a minute.
void fill(parameters::ParameterTable& table, const model::ComputePlace& place) {
  table.allocate({.device = place.device, .working = place.working, .master = place.master});
  for (const parameters::Segment& segment : table.segments()) {
    const Tensor weights = table.view(table.master(), segment);
    if (segment.shape.size() > 1) {
      weights.normal_(0, deviation_of(segment));
    } else if (segment.initialization.kind == parameters::Initialization::Kind::kOne) {
      weights.fill_(1);
    }
  }
  table.copy_master_to_working();
}

experts::Routing routing_of(const config::Config& config, uint64_t step) {
  return {.mode = experts::RoutingMode::kBalanced,
          .training = experts::TrainingRoute{.groups = config.experts.groups,
                                             .shuffle = config.experts.shuffle,
                                             .seed = 1,
                                             .step = step}};
}

// Prices follow the solver's as in training: the next assignment starts from them.
void learn_prices(experts::Router& router, const config::Config& config, uint64_t step) {
  const experts::RoutingStats stats = router.take_stats();
  const Tensor prices = stats.price_sum().cpu();
  if (prices.numel() == 0) return;
  const Tensor seen = prices / stats.sum(experts::kSumOfGroups);
  const double share =
      std::max(1 - config.experts.price_decay, 1 / (static_cast<double>(step) + 1));
  router.prices()->move_towards(seen, share);
}

// Of one pass. On a GPU several in a row hide what the host takes to queue them, if `times` says
// so.
double seconds_of(const LayerPass& pass, int times,
                  const std::function<Tensor(const Tensor&)>& forward) {
  const Tensor tokens = pass.tokens.detach().requires_grad_();
  step::DeviceTimer timer;
  timer.begin(tokens.device());
  for (int i = 0; i < times; ++i)
    torch::autograd::grad({forward(tokens)}, {tokens}, {pass.gradient});
  timer.end();
  return timer.take_seconds() / times;
}

int times_in_a_row(const LayerPass& pass) { return pass.tokens.is_cpu() ? 1 : 10; }

double busiest_of(const experts::ExpertRows& rows_of_expert) {
  const std::vector<int64_t> rows = rows_of_expert.counts_on_host();
  const auto all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  return static_cast<double>(std::ranges::max(rows)) * static_cast<double>(rows.size()) / all;
}

}  // namespace

MeasuredLayer::MeasuredLayer(const config::Config& config, const model::ComputePlace& place,
                             comm::Communicator& workers)
    : config_(config), layer_(config, 0, table_, workers) {
  fill(table_, place);
}

double MeasuredLayer::run(const LayerPass& pass) {
  const experts::Routing routing = routing_of(config_, pass.step);
  const double seconds =
      seconds_of(pass, 1, [&](const Tensor& tokens) { return layer_.forward(tokens, routing); });
  learn_prices(layer_.router(), config_, pass.step);
  return seconds;
}

std::map<std::string, double> MeasuredLayer::run_in_parts(const LayerPass& pass) {
  step::StepClock clock(pass.tokens.device());
  experts::Routing routing = routing_of(config_, pass.step);
  routing.watch = &clock;
  clock.start();
  clock.switch_to(step::StepPart::kExperts);
  seconds_of(pass, 1, [&](const Tensor& tokens) { return layer_.forward(tokens, routing); });
  clock.stop();
  layer_.router().take_stats();
  std::map<std::string, double> seconds;
  for (const step::PartSeconds& part : clock.read())
    seconds[std::string(step::part_name(part.part))] = part.seconds;
  return seconds;
}

MeasuredLayer::Assigned MeasuredLayer::run_assigned(const LayerPass& pass,
                                                    experts::MatrixGradients gradients) {
  experts::Routing routing = routing_of(config_, pass.step);
  routing.gradients = gradients;
  experts::Router& router = layer_.router();
  experts::Dispatch dispatch = router.route(router.affinities(pass.tokens), {}, routing);
  if (dispatch.weights.defined()) dispatch.weights = dispatch.weights.detach();
  router.take_stats();
  const double seconds = seconds_of(pass, times_in_a_row(pass), [&](const Tensor& tokens) {
    return layer_.forward_routed(tokens, dispatch, routing);
  });
  return {seconds, busiest_of(dispatch.rows_of_expert)};
}

at::Tensor MeasuredLayer::gate() const {
  const auto scores_experts = [](const parameters::Segment& segment) {
    return segment.owner == parameters::Owner::kRouter && segment.shape.size() == 2;
  };
  const parameters::Segment& segment = *std::ranges::find_if(table_.segments(), scores_experts);
  return table_.view(table_.master(), segment).to(at::kCPU, at::kFloat);
}

DenseStack::DenseStack(const config::Config& config, const model::ComputePlace& place)
    : times_(config.experts.experts_of_token()) {
  const int64_t d = config.model.width, f = config.model.feed_forward_width();
  for (int64_t i = 0; i < config.experts.sublayers_of_layer(); ++i) {
    const auto part = [&](const char* name, std::vector<int64_t> shape,
                          parameters::Initialization initialization) -> const kernels::Parameter& {
      return table_.declare({.name = fmt::format("sublayer.{}.{}", i, name),
                             .shape = std::move(shape),
                             .initialization = initialization});
    };
    const auto zero = parameters::Initialization::zero(),
               normal = parameters::Initialization::normal(parameters::kWeightDeviation);
    sublayers_.push_back({.norm = part("norm.weight", {d}, parameters::Initialization::one()),
                          .norm_bias = part("norm.bias", {d}, zero),
                          .up = part("up.weight", {f, d}, normal),
                          .up_bias = part("up.bias", {f}, zero),
                          .down = part("down.weight", {d, f}, normal),
                          .down_bias = part("down.bias", {d}, zero)});
  }
  fill(table_, place);
}

double DenseStack::run(const LayerPass& pass) {
  const LayerPass repeated{pass.tokens.repeat({times_, 1}), pass.gradient.repeat({times_, 1})};
  return seconds_of(repeated, times_in_a_row(pass), [&](const Tensor& tokens) {
    Tensor h = tokens;
    for (const Sublayer& s : sublayers_) {
      h = h + kernels::feed_forward(kernels::layer_norm(h, s.norm, s.norm_bias),
                                    {s.up, s.up_bias, s.down, s.down_bias});
    }
    return h;
  });
}

}  // namespace ballast::cli
