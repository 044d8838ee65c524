// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/model_size.h"

namespace ballast::model {
namespace {

// What the layers of experts leave of the blocks, and what they need themselves.
struct Parts {
  explicit Parts(const config::Config& config)
      : d(config.model.width),
        f(config.model.feed_forward_width()),
        expert_f(config.experts.width_of_expert(config.model)),
        shared_f(config.experts.width_of_shared(config.model)),
        blocks(config.model.layers),
        layers(config.experts.layers),
        sublayers(layers * config.experts.sublayers_of_layer()),
        feed_forwards(blocks - (config.experts.replaces_feed_forwards() ? layers : 0)),
        scores(layers * config.experts.count * d),
        router_norms(config.experts.features == config::Features::kNormed ? layers * 2 * d : 0) {}

  int64_t attention_matrices() const { return 4 * d * d; }
  int64_t matrices_of_width(int64_t hidden) const { return 2 * d * hidden; }

  // Parameters of one worker of `shards` that hold the model together.
  int64_t attention(int64_t shards) const {
    return (attention_matrices() + 3 * d) / shards + d + 2 * d;  // output bias and norm are whole
  }
  int64_t feed_forward(int64_t hidden, int64_t shards) const {
    return (matrices_of_width(hidden) + hidden) / shards + d + 2 * d;
  }
  int64_t shared(const config::ModelConfig& model, int64_t shards) const {
    const int64_t rows = (model.vocabulary + shards - 1) / shards;
    return (rows + model.context) * d + blocks * attention(shards) +
           feed_forwards * feed_forward(f, shards) + 2 * d + scores + router_norms +
           (shared_f > 0 ? sublayers * feed_forward(shared_f, 1) : 0);
  }
  int64_t per_expert() const { return sublayers * feed_forward(expert_f, 1); }

  int64_t d, f, expert_f, shared_f, blocks;  // f: of feed-forwards, experts, the shared expert
  int64_t layers, sublayers;                 // sublayers: of one expert, in all layers
  int64_t feed_forwards;                     // of the blocks that have one
  int64_t scores;                            // the weights that score experts, in all layers
  int64_t router_norms;
};

}  // namespace

ModelSize model_size(const config::Config& config) {
  const config::ModelConfig& m = config.model;
  const config::ExpertsConfig& e = config.experts;
  const Parts parts(config);
  ModelSize size;
  size.shared = parts.shared(m, 1);
  size.per_expert = parts.per_expert();
  size.total = size.shared + e.count * size.per_expert;
  size.active = size.shared + e.experts_of_token() * size.per_expert;
  // Hidden units that a token meets, in all layers.
  const int64_t met = parts.feed_forwards * parts.f +
                      parts.sublayers * (e.experts_of_token() * parts.expert_f + parts.shared_f);
  const int64_t matrices =
      m.layers * parts.attention_matrices() + parts.matrices_of_width(met) + m.vocabulary * m.width;
  size.flops_per_token = static_cast<double>(6 * (matrices + m.layers * m.width * m.context) +
                                             (e.gates_at_experts() ? 2 : 6) * parts.scores);
  return size;
}

int64_t parameters_of_worker(const config::Config& config, int64_t workers) {
  const Parts parts(config);
  return parts.shared(config.model, config.training.model_parallel) +
         config.experts.count / workers * parts.per_expert();
}

ParameterBytes bytes_of_parameter(int64_t working, int64_t master) {
  return {.weights = working == master ? master : working + master,
          .gradients = working,
          .moments = 2 * master};
}

}  // namespace ballast::model
