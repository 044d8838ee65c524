// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "ballast/config/config.h"

namespace ballast::exchange {

// The models of transformers that a decoder of ours can be, and the reverse; and our own for
// transformers (modeling_ballast.py).
enum class Family { kGpt2, kLlama, kQwen2, kQwen3, kMixtral, kOlmoe, kQwen3Moe, kBallast };

struct FamilyTraits {
  Family family;
  std::string_view architecture;  // of config.json: "LlamaForCausalLM"
  std::string_view model_type;    // "llama"
  double rope_theta = 10'000;     // where config.json does not say
  double norm_epsilon = 1e-6;
  bool has_experts = false;
};

const FamilyTraits& traits_of(Family family);
// By its architecture, or, if that is empty, by its model type; nothing: we know none.
std::optional<Family> find_family(std::string_view architecture, std::string_view model_type);
// "GPT2LMHeadModel, LlamaForCausalLM, ..."
std::string families_in_words();

// The one of transformers' own that computes what this model does; nothing: there is none. What
// only training has (dropout, capacities, masks of documents) does not count.
std::optional<Family> fitting_family(const config::Config& config);

}  // namespace ballast::exchange
