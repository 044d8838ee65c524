// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/read_config.h"

#include <algorithm>
#include <array>

#include "ballast/config/knobs.h"
#include "ballast/exchange/config_keys.h"
#include "ballast/exchange/read_rope.h"
#include "ballast/exchange/write_config.h"
#include "ballast/system/error.h"

namespace ballast::exchange {
namespace {

using config::Activation;
using config::Biases;
using config::Config;
using config::ModelConfig;
using config::QueryKeyNorm;

Family family_of(const ConfigKeys& keys) {
  const std::vector<std::string> architectures = keys.texts("architectures");
  const std::string architecture = architectures.empty() ? "" : architectures.front();
  const std::string type = keys.text("model_type", "");
  if (const auto family = find_family(architecture, type)) return *family;
  fail("{}: the architecture {} is not one that can be read; these are: {}", keys.file(),
       architecture.empty() ? (type.empty() ? "is not told, which" : type) : architecture,
       families_in_words());
}

Activation gpt2_activation(const ConfigKeys& keys) {
  const std::string name = keys.text("activation_function", "gelu_new");
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGelu;
  if (name == "relu") return Activation::kRelu;
  if (name == "relu2") return Activation::kRelu2;
  keys.refuse("activation_function", "which is none of gelu_new, gelu, relu and relu2");
}

void read_gpt2(const ConfigKeys& keys, ModelConfig& m) {
  m.width = keys.integer("n_embd");
  m.layers = keys.integer("n_layer");
  m.heads = keys.integer("n_head");
  m.hidden = keys.integer("n_inner", 0);
  m.context = keys.integer("n_positions", 1024);
  m.norm_epsilon = keys.number("layer_norm_epsilon", traits_of(Family::kGpt2).norm_epsilon);
  m.activation = gpt2_activation(keys);
  m.tied = keys.flag("tie_word_embeddings", true);
  if (!keys.flag("scale_attn_weights", true))
    keys.refuse("scale_attn_weights", "but attention here is divided by the root of its width");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (keys.flag(key, false)) keys.refuse(key, "which a decoder here has not");
  }
}

Biases read_biases(const ConfigKeys& keys, Family family) {
  if (family == Family::kQwen2) return Biases::kQkv;
  const bool attention = family != Family::kMixtral && keys.flag("attention_bias", false);
  const bool feed_forward = family == Family::kLlama && keys.flag("mlp_bias", false);
  if (attention == feed_forward) return attention ? Biases::kAll : Biases::kNone;
  keys.refuse(attention ? "attention_bias" : "mlp_bias",
              "but biases here are those of all matrices, of queries, keys and values, or none");
}

// A token sees all that came before it here, so a window must not be smaller than the context.
void check_windows(const ConfigKeys& keys, Family family, const ModelConfig& m) {
  if (family == Family::kLlama || family == Family::kOlmoe) return;
  const bool optional = family != Family::kMixtral;
  if (optional && !keys.flag("use_sliding_window", false)) return;
  if (!keys.has("sliding_window") || keys.integer("sliding_window") >= m.context) return;
  const bool by_layer = family == Family::kQwen2 || family == Family::kQwen3;
  if (by_layer) {
    const std::vector<std::string> types = keys.texts("layer_types");
    const bool all_full = std::ranges::all_of(
        types, [](const std::string& type) { return type == "full_attention"; });
    if (!types.empty() && all_full) return;
    if (types.empty() && keys.integer("max_window_layers", 28) >= m.layers) return;
  }
  keys.refuse("sliding_window",
              fmt::format("but attention here sees the whole context of {}; give --context {} to "
                          "use the model up to there",
                          m.context, keys.integer("sliding_window")));
}

void read_llama_like(const ConfigKeys& keys, Family family, ModelConfig& m) {
  m.width = keys.integer("hidden_size");
  m.layers = keys.integer("num_hidden_layers");
  m.heads = keys.integer("num_attention_heads");
  m.heads_kv = keys.integer("num_key_value_heads", m.heads);
  m.head_width = family == Family::kOlmoe ? 0 : keys.integer("head_dim", 0);
  if (family == Family::kQwen3 && m.head_width == 0) m.head_width = 128;  // Qwen3Config's
  m.hidden = keys.integer("intermediate_size");
  m.context = keys.integer("max_position_embeddings");
  m.norm = config::NormKind::kRms;
  m.norm_epsilon = keys.number("rms_norm_eps", traits_of(family).norm_epsilon);
  m.tied = keys.flag("tie_word_embeddings", false);
  m.biases = read_biases(keys, family);
  m.activation = Activation::kSwiglu;
  const std::string activation = keys.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish")
    keys.refuse("hidden_act", "but a gated feed-forward here goes through silu");
  if (family == Family::kQwen3 || family == Family::kQwen3Moe)
    m.query_key_norm = QueryKeyNorm::kHead;
  if (family == Family::kOlmoe) m.query_key_norm = QueryKeyNorm::kWidth;
  if (family == Family::kOlmoe && keys.has("clip_qkv"))
    keys.refuse("clip_qkv", "but queries, keys and values are not clipped here");
  read_rope(keys, traits_of(family).rope_theta, m);
}

// The blocks, counted from 1, whose feed-forward is a layer of experts.
std::vector<int64_t> sparse_blocks(const ConfigKeys& keys, Family family, const ModelConfig& m) {
  const bool some = family == Family::kQwen3Moe;
  const int64_t step = some ? keys.integer("decoder_sparse_step", 1) : 1;
  const std::vector<int64_t> dense =
      some ? keys.integers("mlp_only_layers") : std::vector<int64_t>();
  std::vector<int64_t> blocks;
  for (int64_t block = 1; block <= m.layers; ++block) {
    if (step > 0 && block % step == 0 && std::ranges::find(dense, block - 1) == dense.end())
      blocks.push_back(block);
  }
  return blocks;
}

void read_experts(const ConfigKeys& keys, Family family, Config& config) {
  config::ExpertsConfig& e = config.experts;
  const bool is_mixtral = family == Family::kMixtral;
  const char* const count = keys.has("num_local_experts") ? "num_local_experts" : "num_experts";
  e.count = keys.integer(count);
  const int64_t of_token = keys.integer("num_experts_per_tok");
  e.renormalise = is_mixtral || keys.flag("norm_topk_prob", false);
  if (of_token == 1 && e.renormalise) {
    keys.refuse("num_experts_per_tok",
                "whose weight is then always 1, but the weight of a single expert here is its "
                "probability");
  }
  e.router = of_token == 1 ? "switch" : "sparsely_gated";
  e.per_token = of_token == 1 ? 0 : of_token;
  e.renormalise = e.renormalise || of_token == 1;  // nothing to choose there
  e.hidden = family == Family::kQwen3Moe ? keys.integer("moe_intermediate_size") : 0;
  e.placement = config::Placement::kReplace;
  e.norm = config::ExpertNorm::kLayer;
  take_papers_frame(e);
  e.capacity = 0;  // they were trained without dropping tokens
  e.balance_weight = keys.number("router_aux_loss_coef", is_mixtral ? 0.001 : e.balance_weight);
  const std::vector<int64_t> blocks = sparse_blocks(keys, family, config.model);
  e.layers = static_cast<int64_t>(blocks.size());
  if (blocks.empty() || e.places(config.model.layers) != blocks) {
    keys.refuse(keys.has("mlp_only_layers") ? "mlp_only_layers" : "decoder_sparse_step",
                fmt::format("but the layers of experts here stand for the feed-forwards of blocks "
                            "floor(i {} / N)",
                            config.model.layers));
  }
}

// A model of ours that transformers saved again. What its file says in our words must be what it
// says in theirs: somebody may have changed either.
void read_our_own(const ConfigKeys& keys, const nlohmann::json& object, Config& config) {
  if (!keys.has(kOwnConfigKey)) {
    fail("{}: it has no {}: export the model again with this program", keys.file(), kOwnConfigKey);
  }
  config::read_recorded_config(config, keys.text(kOwnConfigKey, ""),
                               keys.file() + ", " + kOwnConfigKey);
  // transformers leaves out what is its default, and has these in its own way.
  constexpr std::array kTheirs = {"architectures", "auto_map",     "torch_dtype",
                                  "bos_token_id",  "eos_token_id", "use_cache"};
  const nlohmann::json wanted = config_of_our_own(config, {});
  for (const auto& [key, value] : wanted.items()) {
    if (std::ranges::find(kTheirs, key) != kTheirs.end() || !keys.has(key.c_str())) continue;
    if (object.at(key) != value) {
      keys.refuse(key.c_str(),
                  fmt::format("but {} makes it {}: it was changed", kOwnConfigKey, value.dump()));
    }
  }
}

void shorten(const ConfigKeys& keys, int64_t context, ModelConfig& m) {
  if (context == 0 || context == m.context) return;
  if (m.positions == config::Positions::kLearned || context > m.context) {
    fail("{}: --context {}: the model has {} positions{}", keys.file(), context, m.context,
         context > m.context ? "" : ", all of them learned");
  }
  m.context = context;
}

// Runs `check`, whose UserErrors do not know where the values came from.
template <typename Check>
void naming_file(const ConfigKeys& keys, Check check) {
  try {
    check();
  } catch (const UserError& error) {
    fail("{}: {}", keys.file(), error.what());
  }
}

}  // namespace

HfModel read_model(const HfFolder& folder, int64_t context) {
  const ConfigKeys keys(folder.config_path().string(), folder.config());
  HfModel model{.family = family_of(keys)};
  ModelConfig& m = model.config.model;
  if (keys.has("quantization_config"))
    keys.refuse("quantization_config", "but weights here are fp32, bf16 or fp16");
  if (model.family == Family::kBallast) {
    read_our_own(keys, folder.config(), model.config);
    shorten(keys, context, m);
    return model;
  }
  m.vocabulary = keys.integer("vocab_size");
  if (model.family == Family::kGpt2) {
    read_gpt2(keys, m);
  } else {
    read_llama_like(keys, model.family, m);
  }
  shorten(keys, context, m);
  // At once: a small file may claim more blocks than anyone could count.
  naming_file(keys, [&] { config::check_ranges(model.config); });
  if (model.family != Family::kGpt2) check_windows(keys, model.family, m);
  if (traits_of(model.family).has_experts) read_experts(keys, model.family, model.config);
  naming_file(keys, [&] {
    config::check_ranges(model.config);
    config::check_config(model.config);
  });
  return model;
}

}  // namespace ballast::exchange
