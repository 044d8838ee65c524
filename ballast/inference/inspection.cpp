// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/inspection.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "ballast/batches/eval_windows.h"
#include "ballast/experts/chosen_weights.h"
#include "ballast/inference/expert_embeddings.h"
#include "ballast/loading/batch_tensors.h"
#include "ballast/loading/framing.h"
#include "ballast/system/error.h"

namespace ballast::inference {
namespace {

using at::Tensor;
using experts::RoutingMode;

// The text between what stands before it and one token more: each of its tokens is then predicted
// once, and read once.
struct FramedText {
  batches::Batch batch;
  int64_t before = 0;                // tokens that stand before the text
  std::vector<int64_t> places = {};  // in the batch, of each token that is read but the last
};

FramedText frame(const loading::LoadedModel& loaded,
                 const std::vector<tokenizer::TokenId>& tokens) {
  const auto start = tokenizer::start_of_text(*loaded.tokenizer, loading::framing_of(loaded.data));
  std::vector<int64_t> ids(start.begin(), start.end());
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  ids.push_back(loaded.tokenizer->end_of_text());
  const int64_t context = loaded.config.model.context;
  const bool fits = std::ssize(ids) - 1 <= context;
  const batches::EvalWindows windows(tokens::tokens_in_memory(std::move(ids), {.name = "text"}),
                                     context, fits ? context : (context + 1) / 2);
  FramedText framed{.batch = windows.at(0, windows.size()), .before = std::ssize(start)};
  for (int64_t i = 0; i < std::ssize(framed.batch.targets); ++i)
    if (framed.batch.targets[static_cast<size_t>(i)] >= 0) framed.places.push_back(i);
  return framed;
}

Tensor to_tensor(const std::vector<int64_t>& values) {
  const Tensor tensor = at::empty({std::ssize(values)}, at::kLong);
  std::ranges::copy(values, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

std::vector<int64_t> integers(const Tensor& values) {
  const Tensor here = values.to(at::kCPU, at::kLong).contiguous();
  return {here.const_data_ptr<int64_t>(), here.const_data_ptr<int64_t>() + here.numel()};
}

std::vector<double> numbers(const Tensor& values) {
  const Tensor here = values.to(at::kCPU, at::kDouble).contiguous();
  return {here.const_data_ptr<double>(), here.const_data_ptr<double>() + here.numel()};
}

// [T] of [T, E], at the experts [T].
Tensor at_experts(const Tensor& values, const Tensor& expert) {
  return values.gather(1, expert.unsqueeze(1)).squeeze(1);
}

// The best of the experts but `expert`, [T]; -1: there is none.
Tensor best_of_others(const Tensor& compared, const Tensor& expert) {
  if (compared.size(1) == 1) return at::full({expert.size(0)}, -1, at::kLong);
  return compared.scatter(1, expert.unsqueeze(1), -std::numeric_limits<double>::infinity())
      .argmax(1);
}

// All experts of the tokens, best first: [K, T]. Undefined: the pass does not tell.
Tensor all_experts(const experts::SeenRoute& route, RoutingMode routing, int64_t experts_of_token) {
  if (experts_of_token == 1) return route.expert_of_token.unsqueeze(0);
  if (experts_of_token == 2) return at::stack({route.expert_of_token, route.second_of_token});
  if (routing == RoutingMode::kBalanced) return {};
  return std::get<1>(route.scores.topk(experts_of_token, 1)).t().contiguous();
}

// What was compared less nothing: scores as they were before prices.
Tensor without_prices(const experts::SeenRoute& route, const experts::ExpertLayer& layer,
                      RoutingMode routing) {
  if (routing != RoutingMode::kPriced) return route.scores;
  return route.scores + layer.router().prices()->value().to(at::kFloat);
}

Tensor gates(const loading::LoadedModel& loaded, const experts::ExpertLayer& layer,
             const Tensor& scores, const Tensor& chosen) {
  const config::ExpertsConfig& config = loaded.config.experts;
  Tensor affinities = scores;
  if (config.scores == config::Scores::kCosine)
    affinities =
        scores *
        at::linalg_vector_norm(expert_embeddings(loaded, layer), 2, {1}).to(at::kCPU, at::kFloat);
  return experts::chosen_weights(affinities, chosen, {config.gate, config.renormalise})
      .select(1, 0);
}

// `read`: where the text's tokens lie in the batch.
InspectedLayer look_at(const loading::LoadedModel& loaded, const experts::SeenRoute& whole,
                       const experts::ExpertLayer& layer, RoutingMode routing, const Tensor& read) {
  const auto of_text = [&](const Tensor& all) {
    return all.defined() ? all.to(at::kCPU).index_select(0, read) : all;
  };
  const experts::SeenRoute route{whole.layer, of_text(whole.expert_of_token),
                                 of_text(whole.scores).to(at::kFloat),
                                 of_text(whole.second_of_token)};
  const Tensor scores = without_prices(route, layer, routing), best = scores.argmax(1);
  const Tensor second = route.second_of_token.defined()
                            ? route.second_of_token
                            : best_of_others(route.scores, route.expert_of_token);
  const Tensor chosen = all_experts(route, routing, layer.experts_of_token());
  const auto unknown = std::numeric_limits<double>::quiet_NaN();
  const auto size = static_cast<size_t>(read.numel());
  return {.layer = route.layer,
          .expert = integers(route.expert_of_token),
          .second = integers(second),
          .best = integers(best),
          .score = numbers(at_experts(scores, route.expert_of_token)),
          .second_score = scores.size(1) == 1 ? std::vector<double>(size, unknown)
                                              : numbers(at_experts(scores, second)),
          .best_score = numbers(at_experts(scores, best)),
          .gate = chosen.defined() ? numbers(gates(loaded, layer, scores, chosen))
                                   : std::vector<double>(size, unknown)};
}

// 1 for the tokens of the text alone: what balanced routing balances.
Tensor mask_of(const FramedText& framed, const Tensor& read, at::Device device) {
  const Tensor mask = at::full({std::ssize(framed.batch.inputs)}, 0, at::kBool);
  return mask.index_fill_(0, read, 1).to(device);
}

}  // namespace

std::vector<tokenizer::TokenId> tokens_to_inspect(const loading::LoadedModel& loaded,
                                                  const std::string& text) {
  if (loaded.tokenizer == nullptr) {
    fail("{} was trained on token files that name no tokenizer: a text cannot be read",
         loaded.path.string());
  }
  // No token stands for less than a part of a byte: what is far too long is not encoded at all.
  constexpr size_t kMostBytes = 64 * kMostInspectedTokens;
  std::vector<tokenizer::TokenId> tokens;
  if (text.size() <= kMostBytes) loaded.tokenizer->encode(text, tokens);
  if (text.size() > kMostBytes || tokens.size() > kMostInspectedTokens) {
    fail("the text is too long: it has {} tokens, and {} can be looked at together; shorten it",
         text.size() > kMostBytes ? "far too many" : std::to_string(tokens.size()),
         kMostInspectedTokens);
  }
  if (tokens.empty()) fail("there is no text to look at: type or paste some");
  return tokens;
}

Inspection inspect(const loading::LoadedModel& loaded, std::vector<tokenizer::TokenId> tokens,
                   experts::RoutingMode routing) {
  const at::NoGradGuard no_grad;
  const model::LanguageModel& model = *loaded.model;
  if (tokens.empty() || model.workers().size() != 1)
    throw std::invalid_argument("inspect: no tokens, or several workers");
  const FramedText framed = frame(loaded, tokens);
  const Tensor places = to_tensor(framed.places);
  const auto length = std::ssize(tokens);
  const Tensor read = places.narrow(0, framed.before, length);
  Inspection found{.tokens = std::move(tokens), .losses = {}, .layers = {}};
  experts::Routing watched{.mode = routing};
  if (routing == RoutingMode::kBalanced)
    watched.counted = mask_of(framed, read, loaded.place.device);
  watched.seen = [&](const experts::SeenRoute& route) {
    const auto layer = std::ranges::find(model.expert_layers(), route.layer,
                                         [](const auto& one) { return one->place(); });
    found.layers.push_back(look_at(loaded, route, **layer, routing, read));
  };
  const loading::BatchTensors tensors = loading::to_device(framed.batch, loaded.place.device);
  const Tensor hidden = model.forward(tensors.inputs, watched);
  const Tensor losses = model.losses(hidden, tensors.targets).to(at::kCPU, at::kDouble);
  // A token is predicted where the one before it is read.
  found.losses = numbers(losses.index_select(0, places.narrow(0, framed.before - 1, length)));
  return found;
}

}  // namespace ballast::inference
