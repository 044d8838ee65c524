// SPDX-License-Identifier: Apache-2.0
#include "ballast/exchange/read_rope.h"

#include <cmath>

namespace ballast::exchange {
namespace {

using config::ModelConfig;
using config::RopeScaling;

// Not for the whole head, or another for each kind of layer.
void refuse_partial(const ConfigKeys& keys) {
  if (keys.number("partial_rotary_factor", 1) != 1)
    keys.refuse("partial_rotary_factor", "but heads here are turned whole");
}

int64_t old_context(const ConfigKeys& all, const ConfigKeys& scaling, const ModelConfig& model) {
  constexpr const char* kKey = "original_max_position_embeddings";
  return scaling.integer(kKey, all.integer(kKey, model.context));
}

double yarn_scale(double factor, double by) {
  return factor <= 1 ? 1 : 0.1 * by * std::log(factor) + 1;
}

// As transformers resolves it.
double yarn_magnitude(const ConfigKeys& scaling, double factor) {
  if (scaling.has("attention_factor")) return scaling.number("attention_factor");
  const double mscale = scaling.number("mscale", 0), of_all = scaling.number("mscale_all_dim", 0);
  if (mscale != 0 && of_all != 0) return yarn_scale(factor, mscale) / yarn_scale(factor, of_all);
  return yarn_scale(factor, 1);
}

void read_scaling(const ConfigKeys& all, const ConfigKeys& scaling, ModelConfig& m) {
  const char* const key = scaling.has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.text(key, "default");
  refuse_partial(scaling);
  if (type == "default") return;
  if (type == "linear") {
    m.rope_scaling = RopeScaling::kLinear;
    m.rope_factor = scaling.number("factor");
  } else if (type == "llama3") {
    m.rope_scaling = RopeScaling::kLlama3;
    m.rope_factor = scaling.number("factor");
    m.rope_context = old_context(all, scaling, m);
    m.rope_low = scaling.number("low_freq_factor");
    m.rope_high = scaling.number("high_freq_factor");
  } else if (type == "yarn") {
    m.rope_scaling = RopeScaling::kYarn;
    m.rope_factor = scaling.number("factor");
    m.rope_context = old_context(all, scaling, m);
    m.rope_low = scaling.number("beta_slow", 1);
    m.rope_high = scaling.number("beta_fast", 32);
    m.rope_magnitude = yarn_magnitude(scaling, m.rope_factor);
    if (!scaling.flag("truncate", true))
      scaling.refuse("truncate", "but the bounds of yarn are whole numbers here");
  } else {
    scaling.refuse(key, "but angles here are stretched as by default, linear, llama3 or yarn");
  }
}

}  // namespace

void read_rope(const ConfigKeys& keys, double theta, config::ModelConfig& model) {
  model.positions = config::Positions::kRope;
  model.rope_theta = keys.number("rope_theta", theta);
  refuse_partial(keys);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!keys.has(key)) continue;
    const ConfigKeys scaling = keys.within(key);
    if (scaling.has("full_attention") || scaling.has("sliding_attention"))
      keys.refuse(key, "but all layers here turn their heads alike");
    model.rope_theta = scaling.number("rope_theta", model.rope_theta);
    read_scaling(keys, scaling, model);
  }
}

}  // namespace ballast::exchange
