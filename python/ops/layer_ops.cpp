// SPDX-License-Identifier: Apache-2.0
// The layer of experts as two operations of torch that change nothing they are given: one pass, and
// its way back, which returns the gradients of tokens and weights. So gradcheck, torch.compile and
// DistributedDataParallel see ordinary operations. ballast/nn.py names what they compute for
// autograd.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ballast/experts/borrowed_layer.h"
#include "ballast/experts/routing.h"
#include "python/ops/held_layers.h"
#include "python/ops/layer_settings.h"
#include "python/ops/process_group.h"

namespace ballast::python {
namespace {

using at::Tensor;
using experts::BorrowedLayer;

// An operation runs below autograd; a pass that is walked back through must not. Types are the
// caller's: what autocast would make of the parts of a pass is not wanted.
class WithAutograd {
 public:
  WithAutograd() : keys_(local_keys()) {}

 private:
  static c10::impl::LocalDispatchKeySet local_keys() {
    c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    keys.excluded_ = (keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView) |
                     c10::autocast_dispatch_keyset;
    return keys;
  }
  c10::impl::ForceDispatchKeyGuard keys_;
};

// What a pass is told beside tensors.
struct Pass {
  const std::string &settings, &group, &routing;
  bool training = false;
};

BorrowedLayer::Arguments arguments_of(const Pass& pass, const BorrowedLayer& layer,
                                      const Tensor& tokens, const std::optional<Tensor>& earlier,
                                      at::TensorList parameters, const Tensor& prices,
                                      const Tensor& step) {
  BorrowedLayer::Arguments arguments{.tokens = tokens.contiguous(),
                                     .earlier = earlier ? earlier->contiguous() : Tensor(),
                                     .parameters = parameters.vec(),
                                     .prices = prices.numel() > 0 ? prices : Tensor(),
                                     .mode = pass.training
                                                 ? experts::RoutingMode::kBalanced
                                                 : experts::parse_routing_mode(pass.routing)};
  if (pass.training) arguments.training = layer.training_route(step.item<int64_t>());
  return arguments;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> expert_layer(
    const Tensor& tokens, const std::optional<Tensor>& earlier, at::TensorList parameters,
    const Tensor& prices, const Tensor& step, const std::optional<Tensor>& experts,
    const std::string& settings, const std::string& group, const std::string& routing,
    bool training, bool keeps_graph) {
  HeldLayers& layers = HeldLayers::instance();
  const auto key = HeldLayers::key_of(settings, group, tokens.device());
  auto layer = layers.take(key);
  auto arguments = arguments_of({settings, group, routing, training}, *layer, tokens, earlier,
                                parameters, prices, step);
  arguments.experts = experts.value_or(Tensor());
  arguments.keeps_graph = keeps_graph;
  const WithAutograd autograd;
  const auto [output, chosen, found] = layer->forward(arguments);
  Tensor graph = at::empty({0}, at::kLong);
  if (keeps_graph) {
    graph = layers.hold(std::move(layer));
  } else {
    layers.put_back(key, std::move(layer));
  }
  return {output, chosen, found, graph};
}

std::vector<Tensor> expert_layer_backward(const Tensor& gradient, const Tensor& graph,
                                          const Tensor& tokens,
                                          const std::optional<Tensor>& earlier,
                                          at::TensorList parameters, const Tensor& prices,
                                          const Tensor& step, const Tensor& chosen,
                                          const std::string& settings, const std::string& group,
                                          const std::string& routing, bool training) {
  HeldLayers& layers = HeldLayers::instance();
  const WithAutograd autograd;
  const auto key = HeldLayers::key_of(settings, group, tokens.device());
  auto layer = layers.release(graph);
  if (layer == nullptr) {
    // The graph was walked back before (retain_graph), or somebody kept a copy of the tensor that
    // held it: the pass is repeated, with the same experts.
    layer = layers.take(key);
    auto arguments = arguments_of({settings, group, routing, training}, *layer, tokens, earlier,
                                  parameters, prices, step);
    if (training) arguments.experts = chosen;
    arguments.keeps_graph = true;
    layer->forward(arguments);
  }
  BorrowedLayer::Gradients found = layer->backward(gradient);
  layers.put_back(key, std::move(layer));
  std::vector<Tensor> gradients = {
      found.tokens, found.earlier.defined() ? found.earlier : at::empty({0}, tokens.options())};
  gradients.insert(gradients.end(), found.parameters.begin(), found.parameters.end());
  return gradients;
}

// What the layer's parameters are, for whoever makes them: a list of {name, shape, experts}, in the
// order in which passes take them. `experts`: [first, count] of a stack, whose names have the
// number of each in place of "{}"; null: it is one tensor. Beside it the numbers of workers and
// groups.
std::string layer_parameters(const std::string& settings, const std::string& group) {
  const auto workers = open_process_group(group);
  const LayerSettings parsed = parse_settings(settings);
  config::check_workers(parsed.config, workers->size());
  const BorrowedLayer layer(parsed.config, parsed.place, workers);
  const std::string own = "layer." + std::to_string(parsed.place) + ".";
  const int64_t local = parsed.config.experts.count / workers->size();
  auto list = nlohmann::json::array();
  for (const auto& entry : layer.table().entries()) {
    std::string name = entry.first.name.substr(own.size());
    std::vector<int64_t> shape = entry.first.shape;
    if (entry.stacked) {
      shape.insert(shape.begin(), entry.count);
      const std::string expert = "expert." + std::to_string(workers->rank() * local);
      name = "expert.{}" + name.substr(expert.size());
    }
    list.push_back({{"name", name},
                    {"shape", shape},
                    {"decay", entry.first.decay},
                    {"rate", entry.first.rate},
                    {"expert", entry.first.owner == parameters::Owner::kExpert},
                    {"stacked", entry.stacked},
                    {"first", entry.stacked ? workers->rank() * local : 0}});
  }
  const nlohmann::json told = {
      {"parameters", list},
      {"workers", workers->size()},
      {"groups", layer.groups_of_worker()},
      {"experts_of_token", parsed.config.experts.experts_of_token()},
      {"balanced", parsed.config.experts.traits().balanced},
      {"price_decay", parsed.config.experts.price_decay},
      {"test_routing", config::name_of(parsed.config.experts.tested_routing())}};
  return told.dump();
}

// Fresh weights: functions of the seed and the parameters' names, as `ballast train` begins.
std::vector<Tensor> layer_start(const std::string& settings, const std::string& group) {
  const LayerSettings parsed = parse_settings(settings);
  const auto workers = open_process_group(group);
  parameters::ParameterTable table;
  const experts::ExpertLayer layer(parsed.config, parsed.place, table, *workers);
  table.allocate({.trainable = false});
  table.initialize(static_cast<uint64_t>(parsed.config.training.seed));
  std::vector<Tensor> weights;
  for (const auto& entry : table.entries()) weights.push_back(entry.value.clone());
  return weights;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(ballast, library) {
  library.set_python_module("ballast.nn");
  library.def(
      "expert_layer(Tensor tokens, Tensor? earlier, Tensor[] parameters, Tensor prices, Tensor "
      "step, Tensor? experts, str settings, str group, str routing, bool training, bool "
      "keeps_graph) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "expert_layer_backward(Tensor gradient, Tensor graph, Tensor tokens, Tensor? earlier, "
      "Tensor[] parameters, Tensor prices, Tensor step, Tensor chosen, str settings, str group, "
      "str routing, bool training) -> Tensor[]");
  library.def("layer_parameters(str settings, str group) -> str", layer_parameters);
  // How many passes wait for their way back: what a leak would show in.
  library.def("held_layers() -> int", [] { return HeldLayers::instance().held(); });
  library.def("layer_start(str settings, str group) -> Tensor[]", layer_start);
}

TORCH_LIBRARY_IMPL(ballast, CompositeExplicitAutograd, library) {
  library.impl("expert_layer", expert_layer);
  library.impl("expert_layer_backward", expert_layer_backward);
}

}  // namespace ballast::python
