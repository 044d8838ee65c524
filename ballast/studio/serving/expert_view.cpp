// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/expert_view.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "ballast/checkpoint/step_folders.h"
#include "ballast/config/system_words.h"
#include "ballast/inference/expert_embeddings.h"
#include "ballast/loading/weights.h"
#include "ballast/system/error.h"
#include "ballast/tokenizer/token_text.h"

namespace ballast::serving {
namespace {

constexpr size_t kNearest = 5, kTopTokens = 12, kContexts = 12, kMostCheckpoints = 64;
constexpr int64_t kAround = 14;  // tokens on each side of one

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

// tokens[d], of the expert; all[d], of all experts. `told`: they are enough to say something.
Json domains_json(const std::vector<std::string>& names, const std::vector<double>& tokens,
                  const std::vector<double>& all) {
  double of_expert = 0, of_all = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    of_expert += tokens[i];
    of_all += all[i];
  }
  Json list = Json::array();
  for (size_t i = 0; i < names.size(); ++i) {
    const double part = share(tokens[i], of_expert), usual = share(all[i], of_all);
    list.push_back({{"name", names[i]},
                    {"tokens", tokens[i]},
                    {"share", part},
                    {"usual", usual},
                    {"told", all[i] >= record::kTokensOfADomain}});
  }
  return list;
}

Json recorded_tokens(const std::vector<record::TokenUse>& tokens) {
  Json list = Json::array();
  for (const record::TokenUse& one : tokens)
    list.push_back({{"text", one.text}, {"count", one.count}, {"lift", one.lift}});
  return list;
}

// What validation.json tells; null where it says little.
Json recorded_use(const record::LastValidation& validation, const record::LayerUse& layer,
                  int64_t expert) {
  const auto number = static_cast<size_t>(expert);
  if (number >= layer.loads.size()) return nullptr;
  Json use = {{"of", "validation"},
              {"tokens", validation.tokens},
              {"whole_split", validation.whole_split},
              {"load", layer.loads[number]},
              {"fair", validation.tokens / static_cast<double>(layer.loads.size())},
              {"top_tokens", Json::array()},
              {"previous", Json::array()},
              {"told_from", record::kTokensOfADomain},
              {"domains", Json::array()}};
  for (const record::ExpertTokens& one : layer.experts) {
    if (one.expert != expert) continue;
    use["top_tokens"] = recorded_tokens(one.tokens);
    use["previous"] = recorded_tokens(one.previous);
  }
  std::vector<std::string> names;
  for (const record::DomainResult& domain : validation.main()->domains)
    names.push_back(domain.name);
  if (number < layer.domain_loads.size() && layer.domain_loads[number].size() == names.size()) {
    std::vector<double> all(names.size());
    for (const std::vector<double>& loads : layer.domain_loads)
      for (size_t i = 0; i < std::min(all.size(), loads.size()); ++i) all[i] += loads[i];
    use["domains"] = domains_json(names, layer.domain_loads[number], all);
  }
  return use;
}

Json sampled_use(const inference::ExpertSample& sample, const loading::LoadedModel& loaded,
                 const ExpertOrder& order) {
  const inference::ExpertUse use = sample.use_of(order.layer, order.expert);
  Json tokens = Json::array();
  for (const auto& top : use.top_tokens(0, kTopTokens)) {
    const auto text = tokenizer::token_text(loaded.tokenizer.get(), top.token);
    tokens.push_back({{"text", text.value_or(token_for_page(nullptr, top.token))},
                      {"count", top.count},
                      {"lift", top.lift}});
  }
  const auto numbers = [](const std::vector<int64_t>& counts) {
    return std::vector<double>(counts.begin(), counts.end());
  };
  const std::vector<double> own = numbers(use.domain_loads(0));
  std::vector<double> all = numbers(use.domain_loads(1));
  for (size_t i = 0; i < all.size(); ++i) all[i] += own[i];
  return {
      {"of", "sample"},
      {"tokens", use.total()},
      {"whole_split", false},
      {"load", use.loads()[0]},
      {"fair", static_cast<double>(use.total()) / static_cast<double>(loaded.config.experts.count)},
      {"top_tokens", tokens},
      {"previous", Json::array()},
      {"told_from", record::kTokensOfADomain},
      {"domains", domains_json(use.domains(), own, all)}};
}

Json contexts_json(const ValidationSamples::Entry& sampled, const loading::LoadedModel& loaded,
                   const ExpertOrder& order) {
  const tokenizer::Tokenizer* const tokenizer = loaded.tokenizer.get();
  const bool exists = sampled.sample != nullptr;
  const bool whole = exists && sampled.sample->is_whole();
  Json list = Json::array();
  if (whole) {
    for (const inference::TokenInContext& one :
         sampled.sample->contexts_of(order.layer, order.expert, kContexts, kAround)) {
      list.push_back({{"before", text_for_page(tokenizer, one.before)},
                      {"token", token_for_page(tokenizer, one.token)},
                      {"after", text_for_page(tokenizer, one.after)},
                      {"domain", one.domain}});
    }
  }
  return {{"state", !sampled.trouble.empty() ? "missing"
                    : whole                  ? "ready"
                                             : "reading"},
          {"trouble", sampled.trouble},
          {"windows", exists ? sampled.sample->read() : 0},
          {"wanted", exists ? sampled.sample->wanted() : 0},
          {"list", list}};
}

Json loads_by_routing(const std::optional<record::LastValidation>& validation, int64_t layer,
                      int64_t expert) {
  Json loads = Json::object();
  if (!validation) return loads;
  for (const record::RoutingUse& routing : validation->routings)
    for (const record::LayerUse& one : routing.layers)
      if (one.layer == layer && static_cast<size_t>(expert) < one.loads.size())
        loads[routing.routing] = one.loads[static_cast<size_t>(expert)];
  return loads;
}

}  // namespace

std::optional<record::LastValidation> validation_of(const std::filesystem::path& run) {
  const std::filesystem::path file = run / "validation.json";
  if (!record::is_validation_file(file)) return std::nullopt;
  try {
    return record::read_validation(file);
  } catch (const UserError&) {  // of a newer program: a page can do without
    return std::nullopt;
  }
}

const record::LayerUse* layer_in(const std::optional<record::LastValidation>& validation,
                                 int64_t layer) {
  const record::RoutingUse* const use = validation ? validation->main() : nullptr;
  if (use == nullptr) return nullptr;
  const auto found = std::ranges::find(use->layers, layer, &record::LayerUse::layer);
  return found == use->layers.end() ? nullptr : &*found;
}

Json price_history(const std::filesystem::path& run, int64_t layer, int64_t expert) {
  const std::vector<checkpoint::StepFolder> all =
      checkpoint::list_step_folders(run / "checkpoints");
  Json history = Json::array();
  const size_t wanted = std::min(all.size(), kMostCheckpoints);
  const std::string name = fmt::format("layer.{}.prices", layer);
  for (size_t i = 0; i < wanted; ++i) {
    const checkpoint::StepFolder& folder =
        all[wanted == 1 ? 0 : i * (all.size() - 1) / (wanted - 1)];
    try {
      const checkpoint::Checkpoint checkpoint(folder.path);
      if (!checkpoint.has(name)) continue;
      const std::vector<int64_t> shape = checkpoint.tensor(name).shape;
      if (shape.size() != 1 || expert >= shape.front()) continue;
      const at::Tensor prices = at::empty(shape, at::kDouble);
      loading::load_segment(checkpoint, name, prices);
      history.push_back(
          {{"step", folder.step}, {"price", prices.const_data_ptr<double>()[expert]}});
    } catch (const UserError&) {  // it is being deleted, or damaged: the others tell enough
    }
  }
  return history;
}

Json expert_json(const loading::LoadedModel& loaded, const ExpertOrder& order,
                 const std::optional<record::LastValidation>& validation,
                 const ValidationSamples::Entry& sampled) {
  const experts::ExpertLayer& layer = *loaded.model->expert_layers()[order.layer];
  const Json prices = prices_json(layer);
  Json nearest = Json::array();
  for (const auto& near : inference::nearest_experts(inference::expert_embeddings(loaded, layer),
                                                     order.expert, kNearest))
    nearest.push_back({{"expert", near.expert}, {"cosine", near.cosine}});
  const bool fits = validation && validation->step == static_cast<int64_t>(loaded.step);
  const record::LayerUse* const recorded = fits ? layer_in(validation, layer.place()) : nullptr;
  Json use;
  if (recorded != nullptr) use = recorded_use(*validation, *recorded, order.expert);
  if (use.is_null() && sampled.sample != nullptr && sampled.sample->is_whole())
    use = sampled_use(*sampled.sample, loaded, order);
  return {{"layer", layer.place()},
          {"name", config::layers_in_words(loaded.config)[order.layer]},
          {"expert", order.expert},
          {"experts", layer.experts()},
          {"price", prices.is_null() ? Json() : prices[static_cast<size_t>(order.expert)]},
          {"nearest", nearest},
          {"use", use},
          {"loads",
           fits ? loads_by_routing(validation, layer.place(), order.expert) : Json(Json::object())},
          {"contexts", contexts_json(sampled, loaded, order)}};
}

}  // namespace ballast::serving
