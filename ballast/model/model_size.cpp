// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/model_size.h"

namespace ballast::model {
namespace {

// What the layers of experts leave of the blocks, and what they need themselves.
struct Parts {
  explicit Parts(const config::Config& config)
      : m(config.model),
        own_norms(config.experts.norm == config::ExpertNorm::kOwn),
        d(config.model.width),
        f(config.model.feed_forward_width()),
        expert_f(config.experts.width_of_expert(config.model)),
        shared_f(config.experts.width_of_shared(config.model)),
        blocks(config.model.layers),
        layers(config.experts.layers),
        sublayers(layers * config.experts.sublayers_of_layer()),
        feed_forwards(blocks - (config.experts.replaces_feed_forwards() ? layers : 0)),
        scores(layers * config.experts.count * d),
        router_norms(config.experts.features == config::Features::kNormed &&
                             (own_norms || config.experts.look_ahead)
                         ? layers
                         : 0) {}

  int64_t attention_matrices() const { return 2 * d * (m.query_width() + m.kv_width()); }
  // Matrices of a feed-forward: a gated one has three.
  int64_t matrices_of_width(int64_t hidden) const { return (m.is_gated() ? 3 : 2) * d * hidden; }
  int64_t norm() const { return m.norm == config::NormKind::kLayer ? 2 * d : d; }
  int64_t head_norms(int64_t shards) const {
    if (m.query_key_norm == config::QueryKeyNorm::kNone) return 0;
    return m.query_key_norm == config::QueryKeyNorm::kHead
               ? 2 * m.width_of_head()
               : (m.query_width() + m.kv_width()) / shards;
  }

  // Parameters of one worker of `shards` that hold the model together.
  int64_t attention(int64_t shards) const {
    const int64_t biases = m.has_qkv_biases() ? m.query_width() + 2 * m.kv_width() : 0;
    // Norm and output bias are whole.
    return (attention_matrices() + biases) / shards + head_norms(shards) + norm() +
           (m.has_biases() ? d : 0);
  }
  // Without its norm.
  int64_t feed_forward(int64_t hidden, int64_t shards) const {
    const int64_t biases = m.has_biases() ? (m.is_gated() ? 2 : 1) * hidden : 0;
    return (matrices_of_width(hidden) + biases) / shards + (m.has_biases() ? d : 0);
  }
  int64_t expert(int64_t hidden) const {
    return feed_forward(hidden, 1) + (own_norms ? norm() : 0);
  }
  int64_t vocabulary(int64_t shards) const {
    const int64_t rows = (m.vocabulary + shards - 1) / shards;
    const int64_t positions = m.positions == config::Positions::kLearned ? m.context : 0;
    return ((m.tied ? 1 : 2) * rows + positions) * d;
  }
  int64_t shared(int64_t shards) const {
    const int64_t layer_norms = router_norms + (own_norms ? 0 : layers);
    return vocabulary(shards) + blocks * attention(shards) +
           feed_forwards * (feed_forward(f, shards) + norm()) + norm() + scores +
           layer_norms * norm() + (shared_f > 0 ? sublayers * expert(shared_f) : 0);
  }
  int64_t per_expert() const { return sublayers * expert(expert_f); }

  const config::ModelConfig& m;
  bool own_norms;                            // each expert has one
  int64_t d, f, expert_f, shared_f, blocks;  // f: of feed-forwards, experts, the shared expert
  int64_t layers, sublayers;                 // sublayers: of one expert, in all layers
  int64_t feed_forwards;                     // of the blocks that have one
  int64_t scores;                            // the weights that score experts, in all layers
  int64_t router_norms;                      // how many
};

}  // namespace

ModelSize model_size(const config::Config& config) {
  const config::ModelConfig& m = config.model;
  const config::ExpertsConfig& e = config.experts;
  const Parts parts(config);
  ModelSize size;
  size.shared = parts.shared(1);
  size.per_expert = parts.per_expert();
  size.total = size.shared + e.count * size.per_expert;
  size.active = size.shared + e.experts_of_token() * size.per_expert;
  // Hidden units that a token meets, in all layers.
  const int64_t met = parts.feed_forwards * parts.f +
                      parts.sublayers * (e.experts_of_token() * parts.expert_f + parts.shared_f);
  const int64_t matrices =
      m.layers * parts.attention_matrices() + parts.matrices_of_width(met) + m.vocabulary * m.width;
  size.flops_per_token =
      static_cast<double>(6 * (matrices + m.layers * m.query_width() * m.context) +
                          (e.gates_at_experts() ? 2 : 6) * parts.scores);
  return size;
}

int64_t parameters_of_worker(const config::Config& config, int64_t workers) {
  const Parts parts(config);
  return parts.shared(config.training.model_parallel) +
         config.experts.count / workers * parts.per_expert();
}

ParameterBytes bytes_of_parameter(int64_t working, int64_t master) {
  return {.weights = working == master ? master : working + master,
          .master = working == master ? 0 : master,
          .gradients = working,
          .moments = 2 * master};
}

}  // namespace ballast::model
