// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ballast/config/config.h"

namespace ballast::test {

// Changes to layers of experts in today's frame, so that each knob of routers has its turn.
inline std::vector<std::pair<std::string, std::function<void(config::ExpertsConfig&)>>>
router_variants() {
  return {{"the paper's frame", config::take_papers_frame},
          {"no look-ahead", [](config::ExpertsConfig& e) { e.look_ahead = false; }},
          {"raw features", [](config::ExpertsConfig& e) { e.features = config::Features::kRaw; }},
          {"a sigmoid gate", [](config::ExpertsConfig& e) { e.gate = config::Gate::kSigmoid; }},
          {"plain scores", [](config::ExpertsConfig& e) { e.scores = config::Scores::kDot; }},
          {"fast routers of long embeddings",
           [](config::ExpertsConfig& e) {
             e.router_rate = 2;
             e.embedding_gain = 1;
           }},
          {"two small experts of a token, and one for all",
           [](config::ExpertsConfig& e) {
             e.per_token = 2;
             e.hidden = 12;
             e.shared = 0.5;
           }},
          {"Switch with look-ahead", [](config::ExpertsConfig& e) { e.router = "switch"; }},
          {"Sparsely Gated, cosine scores",
           [](config::ExpertsConfig& e) { e.router = "sparsely_gated"; }}};
}

}  // namespace ballast::test
