// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/expert_layer.h"
#include "ballast/experts/routing.h"
#include "ballast/kernels/parameter.h"
#include "ballast/model/attention.h"
#include "ballast/model/key_value_cache.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast {

// One LayerNorm's weight and bias.
struct Norm {
  Norm(int64_t width, const std::string& name, ParameterTable& table);
  at::Tensor operator()(const at::Tensor& x) const;  // [T, D] -> [T, D]
  const Parameter &weight, &bias;
};

// LayerNorm, D -> F, ReLU, F -> D, without the residual connection.
class FeedForward {
 public:
  FeedForward(const ModelConfig& config, const std::string& name, ParameterTable& table);
  at::Tensor forward(const at::Tensor& x) const;  // [T, D] -> [T, D]

 private:
  Norm norm_;
  const Parameter &up_, &up_bias_, &down_, &down_bias_;
};

// What stands for a block's feed-forward.
enum class FeedForwardKind { kDense, kExperts };

// x + attention(norm(x)), then x + feed_forward(norm(x)), or a layer of experts in its place.
struct Block {
  Block(const ModelConfig& config, const std::string& name, FeedForwardKind kind,
        ParameterTable& table);
  Norm attention_norm;
  Attention attention;
  std::optional<FeedForward> feed_forward;  // none: the layer of experts after this block
};

// Is told how far a backward pass has come.
class BackwardProgress {
 public:
  virtual ~BackwardProgress() = default;
  // The gradients of all parameters of blocks >= `block` are summed up.
  virtual void reached(int64_t block) = 0;
};

// The paper's decoder: pre-norm blocks, LayerNorm also on the output, learned positions, and an
// embedding that is tied to the output; between the blocks, or in place of their feed-forwards, the
// layers of experts, which are divided among the workers. Parameters live in the table given at
// construction.
class LanguageModel {
 public:
  // Declares the parameters; the table is allocated by the caller afterwards.
  // REQUIRES: the workers divide the experts, and outlive this.
  LanguageModel(const Config& config, ParameterTable& table, Communicator& workers);

  // tokens [B, S'] int64, S' <= context -> the last representations [B * S', D].
  // Collective where there are experts, also backward.
  at::Tensor forward(const at::Tensor& tokens, const Routing& routing,
                     BackwardProgress* progress = nullptr) const;
  // The same for new tokens [B, N] that follow what the cache holds.
  at::Tensor forward(const at::Tensor& tokens, const Routing& routing, KeyValueCache& cache) const;
  // hidden [T, D] -> [T, V]
  at::Tensor logits(const at::Tensor& hidden) const;

  const Parameter& token_embedding() const { return token_embedding_; }
  const ModelConfig& config() const { return config_; }
  Communicator& workers() const { return workers_; }
  // In the order in which tokens pass them.
  const std::vector<std::unique_ptr<ExpertLayer>>& expert_layers() const { return expert_layers_; }

 private:
  at::Tensor embed_at(const at::Tensor& tokens, const at::Tensor& positions) const;
  // The layers of experts that stand after `blocks` blocks.
  at::Tensor expert_layers_after(int64_t blocks, at::Tensor x, const Routing& routing) const;

  ModelConfig config_;
  Communicator& workers_;
  const Parameter &token_embedding_, &position_embedding_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::unique_ptr<ExpertLayer>> expert_layers_;
  Norm output_norm_;
};

}  // namespace ballast
