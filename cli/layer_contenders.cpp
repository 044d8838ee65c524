// SPDX-License-Identifier: Apache-2.0
#include "cli/layer_contenders.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "ballast/experts/dispatch.h"
#include "ballast/experts/shuffle.h"
#include "ballast/kernels/layer_norm.h"
#include "ballast/kernels/linear.h"
#include "ballast/parameters/weight_deviation.h"

namespace ballast::cli {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

// The deviation of weights like those of a fresh layer; but no projection is zero: products with
// zeros may take less time.
double deviation_of(const Segment& segment) {
  switch (segment.initialization.kind) {
    case Initialization::Kind::kNormal:
      return segment.initialization.deviation;
    case Initialization::Kind::kOrthogonal:
      return segment.initialization.gain / std::sqrt(static_cast<double>(segment.shape.back()));
    default:
      return kWeightDeviation;
  }
}

// Drawn where they are used: a billion would take the host a minute.
void fill(ParameterTable& table, const ComputePlace& place) {
  table.allocate({.device = place.device, .working = place.working, .master = place.master});
  for (const Segment& segment : table.segments()) {
    const Tensor weights = table.view(table.master(), segment);
    if (segment.shape.size() > 1) {
      weights.normal_(0, deviation_of(segment));
    } else if (segment.initialization.kind == Initialization::Kind::kOne) {
      weights.fill_(1);
    }
  }
  table.copy_master_to_working();
}

Routing routing_of(const Config& config, uint64_t step) {
  return {.mode = RoutingMode::kBalanced,
          .training = TrainingRoute{.groups = config.experts.groups,
                                    .shuffle = config.experts.shuffle,
                                    .seed = 1,
                                    .step = step}};
}

// Prices follow the solver's as in training: the next assignment starts from them.
void learn_prices(Router& router, const Config& config, uint64_t step) {
  const RoutingStats stats = router.take_stats();
  if (!stats.price_sum.defined()) return;
  const Tensor seen = stats.price_sum.cpu() / stats.groups;
  const double share =
      std::max(1 - config.experts.price_decay, 1 / (static_cast<double>(step) + 1));
  router.prices()->move_towards(seen, share);
}

// Of one pass. On a GPU several in a row hide what the host takes to queue them, if `times` says
// so.
double seconds_of(const LayerPass& pass, int times,
                  const std::function<Tensor(const Tensor&)>& forward) {
  const Tensor tokens = pass.tokens.detach().requires_grad_();
  DeviceTimer timer;
  timer.begin(tokens.device());
  for (int i = 0; i < times; ++i)
    torch::autograd::grad({forward(tokens)}, {tokens}, {pass.gradient});
  timer.end();
  return timer.take_seconds() / times;
}

int times_in_a_row(const LayerPass& pass) { return pass.tokens.is_cpu() ? 1 : 10; }

double busiest_of(const ExpertRows& rows_of_expert) {
  const std::vector<int64_t> rows = rows_of_expert.counts_on_host();
  const auto all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  return static_cast<double>(std::ranges::max(rows)) * static_cast<double>(rows.size()) / all;
}

// A part of a layer on inputs of its own, so that its backward is apart too.
class TimedStage {
 public:
  using Compute = std::function<Tensor(const Tensors&)>;

  TimedStage(DeviceTimer& timer, const Tensors& inputs, const Compute& compute) : timer_(timer) {
    for (const Tensor& x : inputs) inputs_.push_back(x.detach().requires_grad_());
    timer_.begin(inputs_.front().device());
    output_ = compute(inputs_);
    timer_.end();
  }

  const Tensor& output() const { return output_; }

  // The gradients of the inputs; undefined: it does not depend on that one.
  Tensors backward(const Tensor& gradient) {
    timer_.begin(gradient.device());
    torch::autograd::backward({output_}, {gradient});
    timer_.end();
    Tensors gradients;
    for (const Tensor& x : inputs_) gradients.push_back(x.grad());
    return gradients;
  }

 private:
  DeviceTimer& timer_;
  Tensors inputs_;
  Tensor output_;
};

}  // namespace

WholeLayer::WholeLayer(const Config& config, const ComputePlace& place, Communicator& workers)
    : config_(config), layer_(config, 0, table_, workers) {
  fill(table_, place);
}

double WholeLayer::run(const LayerPass& pass) {
  const Routing routing = routing_of(config_, pass.step);
  const double seconds =
      seconds_of(pass, 1, [&](const Tensor& tokens) { return layer_.forward(tokens, routing); });
  learn_prices(layer_.router(), config_, pass.step);
  return seconds;
}

at::Tensor WholeLayer::gate() const {
  const auto scores_experts = [](const Segment& segment) {
    return segment.owner == Owner::kRouter && segment.shape.size() == 2;
  };
  const Segment& segment = *std::ranges::find_if(table_.segments(), scores_experts);
  return table_.view(table_.master(), segment).to(at::kCPU, at::kFloat);
}

DenseStack::DenseStack(const Config& config, const ComputePlace& place)
    : times_(config.experts.experts_of_token()) {
  const int64_t d = config.model.width, f = config.model.feed_forward_width();
  for (int64_t i = 0; i < config.experts.sublayers_of_layer(); ++i) {
    const auto part = [&](const char* name, std::vector<int64_t> shape,
                          Initialization initialization) -> const Parameter& {
      return table_.declare({.name = fmt::format("sublayer.{}.{}", i, name),
                             .shape = std::move(shape),
                             .initialization = initialization});
    };
    const auto zero = Initialization::zero(), normal = Initialization::normal(kWeightDeviation);
    sublayers_.push_back({.norm = part("norm.weight", {d}, Initialization::one()),
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
      h = h +
          feed_forward(layer_norm(h, s.norm, s.norm_bias), {s.up, s.up_bias, s.down, s.down_bias});
    }
    return h;
  });
}

const std::vector<std::string>& LayerInParts::parts() {
  static const std::vector<std::string> names = {"shuffle", "assign", "exchange", "experts",
                                                 "gate"};
  return names;
}

LayerInParts::LayerInParts(const Config& config, const ComputePlace& place, Communicator& workers)
    : config_(config),
      workers_(workers),
      router_(make_router(config, 0, table_, workers)),
      experts_({.width = config.model.width,
                .hidden = config.model.feed_forward_width(),
                .sublayers = config.experts.sublayers_of_layer(),
                .count = config.experts.count},
               "layer.0", table_) {
  fill(table_, place);
}

RowExchange LayerInParts::draw_shuffle(const LayerPass& pass, const TrainingRoute& route) {
  timers_["shuffle"].begin(pass.tokens.device());
  RowExchange mix = shuffle_way(
      route, 0, {.groups = route.groups, .tokens_of_group = pass.tokens.size(0) / route.groups},
      {.step = route.step, .device = pass.tokens.device()});
  timers_["shuffle"].end();
  return mix;
}

LayerInParts::Times LayerInParts::run(const LayerPass& pass) {
  const Routing routing = routing_of(config_, pass.step);
  const at::Device device = pass.tokens.device();
  const bool shuffles = router_->shuffles(routing);
  const RowExchange mix = shuffles ? draw_shuffle(pass, *routing.training) : RowExchange();
  TimedStage mixing(timers_["exchange"], {pass.tokens}, [&](const Tensors& x) {
    return shuffles ? exchange(workers_, x[0], mix, {"shuffle"}) : x[0];
  });
  Dispatch dispatch;
  TimedStage choosing(timers_["assign"], {mixing.output()}, [&](const Tensors& x) {
    dispatch = router_->route(x[0], routing);
    return dispatch.weights.defined() ? dispatch.weights : x[0];
  });
  RoutedRows routed;
  TimedStage going(timers_["exchange"], {mixing.output()}, [&](const Tensors& x) {
    routed = to_experts(workers_, x[0], dispatch, {"to experts"});
    return routed.rows;
  });
  TimedStage computing(timers_["experts"], {going.output()}, [&](const Tensors& x) {
    routed.rows = x[0];
    return router_->at_experts(routed, experts_, routing);
  });
  TimedStage coming(timers_["exchange"], {computing.output()}, [&](const Tensors& x) {
    return from_experts(workers_, x[0], dispatch, {"from experts"});
  });
  const bool weighs = dispatch.weights.defined();
  TimedStage home(timers_["gate"], {mixing.output(), coming.output(), choosing.output()},
                  [&](const Tensors& x) {
                    if (weighs) dispatch.weights = x[2];
                    return router_->at_tokens(x[0], x[1], dispatch);
                  });
  TimedStage unmixing(timers_["exchange"], {home.output()}, [&](const Tensors& x) {
    return shuffles ? exchange_back(workers_, x[0], mix, {"shuffle back"}) : x[0];
  });

  const Tensors of_home = home.backward(unmixing.backward(pass.gradient).front());
  const Tensor of_computing = computing.backward(coming.backward(of_home[1]).front()).front();
  Tensor of_mixing = going.backward(of_computing).front();
  if (weighs) {
    const Tensor of_choosing = choosing.backward(of_home[2]).front();
    timers_["gate"].begin(device);
    of_mixing = of_mixing + of_choosing + of_home[0];
    timers_["gate"].end();
  }
  mixing.backward(of_mixing);

  learn_prices(*router_, config_, pass.step);
  Times times{.busiest = busiest_of(dispatch.rows_of_expert)};
  for (const std::string& part : parts()) times.seconds[part] = timers_[part].take_seconds();
  return times;
}

double LayerInParts::run_assigned(const LayerPass& pass, MatrixGradients gradients) {
  Routing routing = routing_of(config_, pass.step);
  routing.gradients = gradients;
  Dispatch dispatch = router_->route(pass.tokens, routing);
  if (dispatch.weights.defined()) dispatch.weights = dispatch.weights.detach();
  learn_prices(*router_, config_, pass.step);
  return seconds_of(pass, times_in_a_row(pass), [&](const Tensor& tokens) {
    const RoutedRows routed = to_experts(workers_, tokens, dispatch, {"to experts"});
    const Tensor done = router_->at_experts(routed, experts_, routing);
    const Tensor back = from_experts(workers_, done, dispatch, {"from experts"});
    return router_->at_tokens(tokens, back, dispatch);
  });
}

}  // namespace ballast::cli
