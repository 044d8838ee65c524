// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/write_config.h"

#include <cmath>

#include "ballast/config/shape_toml.h"
#include "ballast/exchange/hf_folder.h"

namespace ballast::exchange {
namespace {

using config::Activation;
using config::Config;
using config::ModelConfig;
using config::RopeScaling;
using Json = nlohmann::ordered_json;

void add_facts(const ConfigFacts& facts, Json& out) {
  // Programs that know the old name alone still find it; transformers takes either.
  out["torch_dtype"] = facts.dtype;
  const Json end = facts.end_of_text ? Json(*facts.end_of_text) : Json();
  out["bos_token_id"] = end;
  out["eos_token_id"] = end;
  out["use_cache"] = true;
}

const char* gpt2_activation(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return "relu";
    case Activation::kRelu2:
      return "relu2";
    case Activation::kGelu:
      return "gelu";
    default:
      return "gelu_new";
  }
}

Json gpt2_config(const ModelConfig& m) {
  return {{"vocab_size", m.vocabulary},
          {"n_positions", m.context},
          {"n_embd", m.width},
          {"n_layer", m.layers},
          {"n_head", m.heads},
          {"n_inner", m.feed_forward_width()},
          {"activation_function", gpt2_activation(m.activation)},
          {"layer_norm_epsilon", m.norm_epsilon},
          {"embd_pdrop", m.dropout},
          {"resid_pdrop", m.dropout},
          {"attn_pdrop", 0.0},
          {"tie_word_embeddings", m.tied}};
}

int64_t old_context(const ModelConfig& m) {
  if (m.rope_context > 0) return m.rope_context;
  return static_cast<int64_t>(std::llround(static_cast<double>(m.context) / m.rope_factor));
}

// In the form that transformers had before 5 and still reads.
Json rope_scaling(const ModelConfig& m) {
  switch (m.rope_scaling) {
    case RopeScaling::kNone:
      return {};
    case RopeScaling::kLinear:
      return {{"rope_type", "linear"}, {"factor", m.rope_factor}};
    case RopeScaling::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", m.rope_factor},
              {"low_freq_factor", m.rope_low},
              {"high_freq_factor", m.rope_high},
              {"original_max_position_embeddings", old_context(m)}};
    case RopeScaling::kYarn:
      break;
  }
  Json yarn = {{"rope_type", "yarn"},
               {"factor", m.rope_factor},
               {"beta_slow", m.rope_low},
               {"beta_fast", m.rope_high},
               {"original_max_position_embeddings", old_context(m)}};
  if (m.rope_magnitude > 0) yarn["attention_factor"] = m.rope_magnitude;
  return yarn;
}

Json llama_like_config(Family family, const ModelConfig& m) {
  Json out = {{"vocab_size", m.vocabulary},
              {"hidden_size", m.width},
              {"intermediate_size", m.feed_forward_width()},
              {"num_hidden_layers", m.layers},
              {"num_attention_heads", m.heads},
              {"num_key_value_heads", m.kv_heads()},
              {"hidden_act", "silu"},
              {"max_position_embeddings", m.context},
              {"rms_norm_eps", m.norm_epsilon},
              {"rope_theta", m.rope_theta},
              {"rope_scaling", rope_scaling(m)},
              {"attention_dropout", 0.0},
              {"tie_word_embeddings", m.tied}};
  if (family != Family::kOlmoe && family != Family::kQwen2) out["head_dim"] = m.width_of_head();
  if (family == Family::kLlama) out["mlp_bias"] = m.has_biases();
  if (family != Family::kQwen2 && family != Family::kMixtral)
    out["attention_bias"] = m.has_biases();
  if (family == Family::kOlmoe) out["clip_qkv"] = Json();
  if (family == Family::kMixtral) out["sliding_window"] = Json();
  if (family == Family::kQwen2 || family == Family::kQwen3 || family == Family::kQwen3Moe)
    out["use_sliding_window"] = false;
  return out;
}

void add_experts(Family family, const Config& config, Json& out) {
  const config::ExpertsConfig& e = config.experts;
  const int64_t width = e.width_of_expert(config.model);
  out[family == Family::kMixtral ? "num_local_experts" : "num_experts"] = e.count;
  out["num_experts_per_tok"] = e.experts_of_token();
  out["router_aux_loss_coef"] = e.balance_weight;
  if (family != Family::kQwen3Moe) out["intermediate_size"] = width;
  if (family != Family::kMixtral) out["norm_topk_prob"] = e.renormalise && e.experts_of_token() > 1;
  if (family != Family::kQwen3Moe) return;
  out["moe_intermediate_size"] = width;
  out["decoder_sparse_step"] = config.model.layers / e.layers;
  out["mlp_only_layers"] = Json::array();
}

Json experts_of_our_own(const Config& config) {
  const config::ExpertsConfig& e = config.experts;
  if (e.layers == 0) return {};
  return {{"places", e.places(config.model.layers)},
          {"replace", e.replaces_feed_forwards()},
          {"count", e.count},
          {"balanced", e.traits().balanced},
          {"per_token", e.experts_of_token()},
          {"sublayers", e.sublayers_of_layer()},
          {"hidden", e.width_of_expert(config.model)},
          {"shared_hidden", e.width_of_shared(config.model)},
          {"norm", config::name_of(e.norm)},
          {"features", config::name_of(e.features)},
          {"gate", config::name_of(e.gate)},
          {"renormalise", e.renormalise},
          {"scores", config::name_of(e.scores)},
          {"look_ahead", e.look_ahead},
          {"routing", config::name_of(e.tested_routing())}};
}

}  // namespace

Json config_of_family(Family family, const Config& config, const ConfigFacts& facts) {
  const FamilyTraits& traits = traits_of(family);
  Json out = {{"architectures", {traits.architecture}}, {"model_type", traits.model_type}};
  out.update(family == Family::kGpt2 ? gpt2_config(config.model)
                                     : llama_like_config(family, config.model));
  if (traits.has_experts) add_experts(family, config, out);
  add_facts(facts, out);
  return out;
}

Json config_of_our_own(const Config& config, const ConfigFacts& facts) {
  const ModelConfig& m = config.model;
  Json out = {{"architectures", {"BallastForCausalLM"}},
              {"model_type", kOwnModelType},
              {"auto_map",
               {{"AutoConfig", "modeling_ballast.BallastConfig"},
                {"AutoModelForCausalLM", "modeling_ballast.BallastForCausalLM"}}},
              {"vocab_size", m.vocabulary},
              {"hidden_size", m.width},
              {"intermediate_size", m.feed_forward_width()},
              {"num_hidden_layers", m.layers},
              {"num_attention_heads", m.heads},
              {"num_key_value_heads", m.kv_heads()},
              {"head_dim", m.width_of_head()},
              {"max_position_embeddings", m.context},
              {"positions", config::name_of(m.positions)},
              {"rope_base", m.rope_theta},
              {"rope_stretch", rope_scaling(m)},
              {"norm", config::name_of(m.norm)},
              {"norm_epsilon", m.norm_epsilon},
              {"activation", config::name_of(m.activation)},
              {"query_key_norm", config::name_of(m.query_key_norm)},
              {"biases", config::name_of(m.biases)},
              {"logit_cap", m.logit_cap},
              {"tie_word_embeddings", m.tied},
              {"experts", experts_of_our_own(config)},
              {kOwnConfigKey, config::shape_to_toml(config)}};
  add_facts(facts, out);
  return out;
}

}  // namespace ballast::exchange
