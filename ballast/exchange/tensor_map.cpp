// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ballast::exchange {
namespace {

using config::Config;
using Shape = std::vector<int64_t>;

// Collects the correspondences of one model.
class Map {
 public:
  Map(Family family, const Config& config, const Layout& layout)
      : family_(family), config_(config), m_(config.model), layout_(layout) {}

  std::vector<Correspondence> all() {
    const std::vector<int64_t> places = config_.experts.places(m_.layers);
    vocabulary();
    for (int64_t block = 0; block < m_.layers; ++block) {
      const bool sparse =
          config_.experts.layers > 0 && std::ranges::find(places, block + 1) != places.end();
      if (family_ == Family::kGpt2) {
        gpt2_block(block);
      } else {
        attention(block);
        sparse ? experts(block) : feed_forward(block);
      }
    }
    return std::move(list_);
  }

 private:
  // One of ours that is one of theirs.
  void same(const std::string& ours, const std::string& theirs, Shape shape) {
    list_.push_back({ours, shape, {{theirs, shape}}});
  }

  void vocabulary() {
    const bool gpt2 = family_ == Family::kGpt2;
    const int64_t v = m_.vocabulary, d = m_.width;
    same("token_embedding", layout_.prefix + (gpt2 ? "wte.weight" : "embed_tokens.weight"), {v, d});
    const std::string norm = layout_.prefix + (gpt2 ? "ln_f" : "norm");
    same("output_norm.weight", norm + ".weight", {d});
    if (gpt2) same("position_embedding", layout_.prefix + "wpe.weight", {m_.context, d});
    if (gpt2) same("output_norm.bias", norm + ".bias", {d});
    if (!m_.tied) same("output.weight", kOutputWeight, {v, d});
  }

  // GPT-2 keeps its matrices as [in, out].
  void gpt2_linear(const std::string& ours, const std::string& theirs, int64_t out, int64_t in) {
    list_.push_back({ours + ".weight",
                     {out, in},
                     {{.name = theirs + ".weight", .shape = {in, out}, .transposed = true}}});
    same(ours + ".bias", theirs + ".bias", {out});
  }

  void gpt2_block(int64_t block) {
    const std::string theirs = fmt::format("{}h.{}.", layout_.prefix, block);
    const std::string ours = fmt::format("block.{}.", block);
    const int64_t d = m_.width, f = m_.feed_forward_width();
    for (const auto& [our_norm, their_norm] :
         {std::pair("attention.norm", "ln_1"), std::pair("feed_forward.norm", "ln_2")}) {
      for (const char* part : {".weight", ".bias"})
        same(ours + our_norm + part, theirs + their_norm + part, {d});
    }
    gpt2_linear(ours + "attention.qkv", theirs + "attn.c_attn", 3 * d, d);
    gpt2_linear(ours + "attention.out", theirs + "attn.c_proj", d, d);
    gpt2_linear(ours + "feed_forward.up", theirs + "mlp.c_fc", f, d);
    gpt2_linear(ours + "feed_forward.down", theirs + "mlp.c_proj", d, f);
  }

  std::string block_of(int64_t block) const {
    return fmt::format("{}layers.{}.", layout_.prefix, block);
  }

  // Theirs one below the other: {name, rows}, each with `columns` of them (0: vectors).
  void joined(const std::string& ours, const std::vector<std::pair<std::string, int64_t>>& theirs,
              int64_t columns) {
    const auto shape = [&](int64_t rows) {
      return columns > 0 ? Shape{rows, columns} : Shape{rows};
    };
    Correspondence joined{.ours = ours, .shape = {}, .parts = {}};
    int64_t all = 0;
    for (const auto& [name, rows] : theirs) {
      joined.parts.push_back({name, shape(rows)});
      all += rows;
    }
    joined.shape = shape(all);
    list_.push_back(std::move(joined));
  }

  void attention(int64_t block) {
    const std::string theirs = block_of(block) + "self_attn.";
    const std::string ours = fmt::format("block.{}.attention.", block);
    const int64_t q = m_.query_width(), kv = m_.kv_width();
    const auto qkv = [&](const char* part) {
      return std::vector<std::pair<std::string, int64_t>>{{theirs + "q_proj" + part, q},
                                                          {theirs + "k_proj" + part, kv},
                                                          {theirs + "v_proj" + part, kv}};
    };
    same(ours + "norm.weight", block_of(block) + "input_layernorm.weight", {m_.width});
    joined(ours + "qkv.weight", qkv(".weight"), m_.width);
    if (m_.has_qkv_biases()) joined(ours + "qkv.bias", qkv(".bias"), 0);
    same(ours + "out.weight", theirs + "o_proj.weight", {m_.width, q});
    if (m_.has_biases()) same(ours + "out.bias", theirs + "o_proj.bias", {m_.width});
    if (m_.query_key_norm == config::QueryKeyNorm::kNone) return;
    const bool of_head = m_.query_key_norm == config::QueryKeyNorm::kHead;
    same(ours + "query_norm.weight", theirs + "q_norm.weight", {of_head ? m_.width_of_head() : q});
    same(ours + "key_norm.weight", theirs + "k_norm.weight", {of_head ? m_.width_of_head() : kv});
  }

  void norm_after_attention(int64_t block, const std::string& ours) {
    same(ours, block_of(block) + "post_attention_layernorm.weight", {m_.width});
  }

  void feed_forward(int64_t block) {
    const std::string theirs = block_of(block) + "mlp.";
    const std::string ours = fmt::format("block.{}.feed_forward.", block);
    const int64_t d = m_.width, f = m_.feed_forward_width();
    norm_after_attention(block, ours + "norm.weight");
    joined(ours + "up.weight", {{theirs + "gate_proj.weight", f}, {theirs + "up_proj.weight", f}},
           d);
    same(ours + "down.weight", theirs + "down_proj.weight", {d, f});
    if (!m_.has_biases()) return;
    joined(ours + "up.bias", {{theirs + "gate_proj.bias", f}, {theirs + "up_proj.bias", f}}, 0);
    same(ours + "down.bias", theirs + "down_proj.bias", {d});
  }

  void experts(int64_t block) {
    const std::string theirs = block_of(block) + layout_.experts + ".";
    const std::string ours = fmt::format("layer.{}.", block + 1);
    norm_after_attention(block, ours + "norm.weight");
    same(ours + "gate.weight", theirs + "gate.weight", {config_.experts.count, m_.width});
    for (int64_t expert = 0; expert < config_.experts.count; ++expert) {
      const std::string sublayer = fmt::format("{}expert.{}.sublayer.0.", ours, expert);
      layout_.packed ? packed_expert(expert, sublayer, theirs + "experts.")
                     : single_expert(sublayer, fmt::format("{}experts.{}.", theirs, expert));
    }
  }

  void single_expert(const std::string& ours, const std::string& theirs) {
    const int64_t d = m_.width, f = config_.experts.width_of_expert(m_);
    const bool mixtral = family_ == Family::kMixtral;
    joined(ours + "up.weight",
           {{theirs + (mixtral ? "w1.weight" : "gate_proj.weight"), f},
            {theirs + (mixtral ? "w3.weight" : "up_proj.weight"), f}},
           d);
    same(ours + "down.weight", theirs + (mixtral ? "w2.weight" : "down_proj.weight"), {d, f});
  }

  void packed_expert(int64_t expert, const std::string& ours, const std::string& theirs) {
    const int64_t d = m_.width, f = config_.experts.width_of_expert(m_), e = config_.experts.count;
    list_.push_back(
        {ours + "up.weight", {2 * f, d}, {{theirs + "gate_up_proj", {e, 2 * f, d}, expert}}});
    list_.push_back({ours + "down.weight", {d, f}, {{theirs + "down_proj", {e, d, f}, expert}}});
  }

  const Family family_;
  const Config& config_;
  const config::ModelConfig& m_;
  const Layout layout_;
  std::vector<Correspondence> list_;
};

}  // namespace

Layout usual_layout(Family family) {
  Layout layout{.prefix = family == Family::kGpt2 ? "transformer." : "model."};
  if (family == Family::kMixtral) layout.experts = "block_sparse_moe";
  return layout;
}

Layout layout_of(const HfFolder& folder, Family family) {
  Layout layout = usual_layout(family);
  const std::vector<std::string> names = folder.names();
  const auto any = [&](const auto& is) { return std::ranges::any_of(names, is); };
  const bool prefixed =
      any([&](const std::string& name) { return name.starts_with(layout.prefix); });
  if (!prefixed) layout.prefix = "";  // the model without its head was saved, as GPT-2's own
  const bool is_old = any(
      [](const std::string& name) { return name.find(".block_sparse_moe.") != std::string::npos; });
  layout.experts = is_old ? "block_sparse_moe" : "mlp";
  layout.packed =
      any([](const std::string& name) { return name.ends_with(".experts.gate_up_proj"); });
  return layout;
}

std::vector<Correspondence> correspondences(Family family, const Config& config,
                                            const Layout& layout) {
  return Map(family, config, layout).all();
}

bool is_ignored(Family family, const Config& config, const std::string& name) {
  if (name == kOutputWeight) return config.model.tied;
  if (family == Family::kGpt2)
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  return name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace ballast::exchange
