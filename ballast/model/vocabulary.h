// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/kernels/cross_entropy.h"
#include "ballast/kernels/parameter.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::model {

// The token embedding, the output's matrix, which may be the same, and the loss. Their rows are
// divided among the shards of a replica: ceil(V / M) each, the last the rest. All results are alike
// on all shards; calls are collective among them.
class Vocabulary {
 public:
  // REQUIRES: no shard is without rows (check_workers); the shards outlive this.
  Vocabulary(const config::ModelConfig& config, parameters::ParameterTable& table,
             comm::Communicator& shards);

  // tokens [T], positions [P] int64, position_embedding [S, D] -> [T, D]; see kernels/embedding.h.
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& positions,
                   const kernels::Parameter& position_embedding,
                   const at::Tensor& graph_root) const;
  // Without positions.
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& graph_root) const;
  // hidden [T, D] -> [T, V]
  at::Tensor logits(const at::Tensor& hidden) const;
  // hidden [T, D], targets [T] int64, negative where ignored: as kernels/cross_entropy.h has them.
  at::Tensor losses(const at::Tensor& hidden, const at::Tensor& targets) const;
  kernels::LossAndGradient losses_and_gradient(const at::Tensor& hidden, const at::Tensor& targets,
                                               double scale) const;

  const kernels::Parameter& embedding() const { return embedding_; }  // of this shard [V / M, D]

 private:
  // For some rows: what each shard knows of their losses, and what follows for all shards.
  at::Tensor part_of_losses(at::Tensor& logits, const at::Tensor& targets) const;  // [3, C]
  struct Whole;
  Whole combine(const at::Tensor& own, const at::Tensor& targets) const;
  void check(const at::Tensor& hidden, const at::Tensor& targets) const;
  // The shard's logits of some rows, capped.  hidden [C, D] -> [C, V / M]
  at::Tensor part_of_logits(const at::Tensor& hidden) const;

  const int64_t size_, rows_, first_;  // V, ceil(V / M), the first row here
  comm::Communicator& shards_;
  const double cap_;  // of logits; 0: none
  const kernels::Parameter& embedding_;
  const kernels::Parameter& output_;  // [V / M, D]; tied: the embedding
};

}  // namespace ballast::model
