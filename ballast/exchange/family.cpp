// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/family.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace ballast::exchange {
namespace {

using config::Biases;
using config::QueryKeyNorm;

constexpr std::array kFamilies = {
    FamilyTraits{Family::kGpt2, "GPT2LMHeadModel", "gpt2", 10'000, 1e-5},
    FamilyTraits{Family::kLlama, "LlamaForCausalLM", "llama"},
    FamilyTraits{Family::kQwen2, "Qwen2ForCausalLM", "qwen2"},
    FamilyTraits{Family::kQwen3, "Qwen3ForCausalLM", "qwen3"},
    FamilyTraits{Family::kMixtral, "MixtralForCausalLM", "mixtral", 1e6, 1e-5, true},
    FamilyTraits{Family::kOlmoe, "OlmoeForCausalLM", "olmoe", 10'000, 1e-5, true},
    FamilyTraits{Family::kQwen3Moe, "Qwen3MoeForCausalLM", "qwen3_moe", 10'000, 1e-6, true},
    FamilyTraits{Family::kBallast, "BallastForCausalLM", "ballast", 10'000, 1e-5, true},
};

bool is_gpt2(const config::ModelConfig& m) {
  return m.positions == config::Positions::kLearned && m.norm == config::NormKind::kLayer &&
         m.biases == Biases::kAll && !m.is_gated() && m.query_key_norm == QueryKeyNorm::kNone &&
         m.kv_heads() == m.heads && m.query_width() == m.width;
}

// The frame that all the others have: rope, RMSNorm and swiglu.
bool is_llama_like(const config::ModelConfig& m) {
  return m.positions == config::Positions::kRope && m.norm == config::NormKind::kRms &&
         m.is_gated();
}

std::optional<Family> fitting_dense(const config::ModelConfig& m) {
  if (is_gpt2(m)) return Family::kGpt2;
  if (!is_llama_like(m)) return {};
  // LlamaConfig wants heads that divide the width, however wide they are.
  if (m.query_key_norm == QueryKeyNorm::kNone && m.biases != Biases::kQkv && m.width % m.heads == 0)
    return Family::kLlama;
  if (m.query_key_norm == QueryKeyNorm::kNone && m.biases == Biases::kQkv &&
      m.query_width() == m.width)
    return Family::kQwen2;
  if (m.query_key_norm == QueryKeyNorm::kHead && m.biases == Biases::kNone) return Family::kQwen3;
  return {};
}

// Gates that read the layer's norm as the experts do, and nothing else beside them.
bool has_plain_gates(const config::ExpertsConfig& e) {
  return !e.traits().balanced && e.replaces_feed_forwards() && e.sublayers_of_layer() == 1 &&
         e.norm == config::ExpertNorm::kLayer && e.features == config::Features::kNormed &&
         e.gate == config::Gate::kSoftmax && e.scores == config::Scores::kDot && !e.look_ahead &&
         e.shared == 0;
}

// Blocks n - 1 of every n-th, as Qwen3Moe counts them.
bool is_every_nth(const config::ExpertsConfig& e, int64_t blocks) { return blocks % e.layers == 0; }

std::optional<Family> fitting_sparse(const config::ModelConfig& m, const config::ExpertsConfig& e) {
  if (!is_llama_like(m) || m.biases != Biases::kNone || !has_plain_gates(e)) return {};
  const bool all = e.layers == m.layers, several = e.experts_of_token() > 1;
  if (m.query_key_norm == QueryKeyNorm::kNone && all && several && e.renormalise)
    return Family::kMixtral;
  // The probability of the one expert is what is left where nothing is renormalised.
  if (m.query_key_norm == QueryKeyNorm::kWidth && all && m.query_width() == m.width)
    return Family::kOlmoe;
  if (m.query_key_norm == QueryKeyNorm::kHead && is_every_nth(e, m.layers))
    return Family::kQwen3Moe;
  return {};
}

}  // namespace

const FamilyTraits& traits_of(Family family) {
  return *std::ranges::find(kFamilies, family, &FamilyTraits::family);
}

std::optional<Family> find_family(std::string_view architecture, std::string_view model_type) {
  const auto* const found =
      architecture.empty()
          ? std::ranges::find(kFamilies, model_type, &FamilyTraits::model_type)
          : std::ranges::find(kFamilies, architecture, &FamilyTraits::architecture);
  if (found == kFamilies.end()) return {};
  return found->family;
}

std::string families_in_words() {
  std::vector<std::string_view> names;
  for (const FamilyTraits& traits : kFamilies) names.push_back(traits.architecture);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<Family> fitting_family(const config::Config& config) {
  if (config.model.logit_cap > 0) return {};
  return config.experts.layers == 0 ? fitting_dense(config.model)
                                    : fitting_sparse(config.model, config.experts);
}

}  // namespace ballast::exchange
