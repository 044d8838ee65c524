// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "ballast/comm/worker_grid.h"
#include "ballast/config/config.h"
#include "ballast/experts/expert_layer.h"
#include "ballast/experts/routing.h"
#include "ballast/kernels/parameter.h"
#include "ballast/model/attention.h"
#include "ballast/model/dropout.h"
#include "ballast/model/feed_forward.h"
#include "ballast/model/key_value_cache.h"
#include "ballast/model/norm.h"
#include "ballast/model/residual_stream.h"
#include "ballast/model/vocabulary.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::model {

// What a block is told of a pass.
struct BlockPass {
  Sequences sequences;
  Dropout dropout;
  step::StepWatch* watch = nullptr;
};

// What a block has as its feed-forward.
enum class FeedForwardKind { kDense, kExperts };

// x + attention(norm(x)), then x + feed_forward(norm(x)), or a layer of experts in its place.
struct Block {
  Block(const config::ModelConfig& config, int64_t number, FeedForwardKind kind,
        parameters::ParameterTable& table, comm::Communicator& shards);
  // The layer of experts is not part of it. REQUIRES: the watch, if any, is in the part kAttention.
  void forward(ResidualStream& x, const BlockPass& pass) const;

  Norm attention_norm;
  Attention attention;
  int64_t number;
  std::optional<FeedForward> feed_forward;  // none: experts, which run after this block
};

// Is told how far a backward pass has come.
class BackwardProgress {
 public:
  virtual ~BackwardProgress() = default;
  // The gradients of all parameters of blocks >= `block` are summed up.
  virtual void reached(int64_t block) = 0;
};

// A decoder of pre-norm blocks, with a norm on the output too. Its parts are config::ModelConfig's:
// the paper's are LayerNorm, ReLU, learned positions, and an embedding that is tied to the output.
// Layers of experts stand between the blocks, or in place of
// their feed-forwards. They are divided among all workers; the rest is divided among the shards of
// each replica. Parameters live in the table given at construction.
class LanguageModel {
 public:
  // Declares the parameters; the table is allocated by the caller afterwards.
  // REQUIRES: check_workers is content with the grid; its everyone() outlives this.
  LanguageModel(const config::Config& config, parameters::ParameterTable& table,
                const comm::WorkerGrid& grid);

  // The replica's tokens [B, S'] int64, S' <= context -> the last representations [B * S', D],
  // alike on its shards. Collective where there are experts, or else among the shards; also
  // backward. routing.watch is told of all parts from the embedding to the output norm and back.
  // With training.recompute blocks are computed again on the way back, their sums over the shards
  // too; layers of experts are not.
  at::Tensor forward(const at::Tensor& tokens, const experts::Routing& routing,
                     BackwardProgress* progress = nullptr) const;
  // The same for new tokens [B, N] that follow what the cache holds.
  at::Tensor forward(const at::Tensor& tokens, const experts::Routing& routing,
                     KeyValueCache& cache) const;
  KeyValueCache new_cache(int64_t rows, const at::TensorOptions& options) const {
    return {config_, rows, options, grid_.num_shards()};
  }

  // hidden [T, D] -> [T, V]. Collective among the shards, as the losses are.
  at::Tensor logits(const at::Tensor& hidden) const { return vocabulary_.logits(hidden); }
  // -log p of the targets [T], negative where ignored; see kernels/cross_entropy.h.
  at::Tensor losses(const at::Tensor& hidden, const at::Tensor& targets) const {
    return vocabulary_.losses(hidden, targets);
  }
  kernels::LossAndGradient losses_and_gradient(const at::Tensor& hidden, const at::Tensor& targets,
                                               double scale) const {
    return vocabulary_.losses_and_gradient(hidden, targets, scale);
  }

  const kernels::Parameter& token_embedding() const {
    return vocabulary_.embedding();
  }  // the shard's rows
  const config::ModelConfig& config() const { return config_; }
  const comm::WorkerGrid& grid() const { return grid_; }
  comm::Communicator& workers() const { return grid_.everyone(); }
  // In the order in which tokens pass them.
  const std::vector<std::unique_ptr<experts::ExpertLayer>>& expert_layers() const {
    return expert_layers_;
  }

 private:
  at::Tensor embed_at(const at::Tensor& tokens, const at::Tensor& positions) const;
  // Of all positions of the context; undefined where they are learned.
  const RopeTables& rope(const at::Tensor& like) const;
  BlockPass pass_of(const at::Tensor& tokens, const at::Tensor& embedded,
                    const experts::Routing& routing) const;
  // Whether a layer of experts after this block reads the stream as it enters the block.
  bool is_read_ahead(int64_t block) const;
  // The layers of experts that stand after `blocks` blocks; `earlier` entered the last of these.
  void expert_layers_after(int64_t blocks, ResidualStream& x, const at::Tensor& earlier,
                           const experts::Routing& routing) const;
  // One of them: the replica's tokens are divided among its shards and gathered again.
  at::Tensor through(experts::ExpertLayer& layer, const at::Tensor& x, const at::Tensor& earlier,
                     const experts::Routing& routing) const;

  config::ModelConfig config_;
  const bool recomputes_blocks_;
  const comm::WorkerGrid grid_;
  Vocabulary vocabulary_;
  const kernels::Parameter& position_embedding_;  // [S, D]; undefined with rope
  mutable RopeTables rope_;                       // made when first asked for
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::unique_ptr<experts::ExpertLayer>> expert_layers_;
  Norm output_norm_;
};

}  // namespace ballast::model
