// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "ballast/comm/communicator.h"
#include "ballast/config/config.h"
#include "ballast/experts/expert_stack.h"
#include "ballast/experts/routing.h"
#include "ballast/experts/token_router.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast {

// Balanced assignment of sparse experts: each token goes through one expert, whose output is mixed
// in by a gate. The experts are divided among the workers; everything else is on all of them.
class BaseLayer {
 public:
  // `place`: the blocks that stand before it; its parameters are called layer.PLACE.*.
  // REQUIRES: the workers divide the experts, and outlive this.
  BaseLayer(const Config& config, int64_t place, ParameterTable& table, Communicator& workers);

  // This worker's tokens h [T, D] -> h + sigmoid(h . w_a) f_a(h), a being the token's expert.
  // Collective, also backward. In training groups divide each worker's tokens.
  at::Tensor forward(const at::Tensor& tokens, const Routing& routing);

  int64_t place() const { return place_; }
  const std::string& name() const { return name_; }  // "layer.6"
  TokenRouter& router() { return router_; }

 private:
  Parameter own_embeddings() const;  // [E / workers, D] of the experts here
  RowExchange shuffle(const at::Tensor& tokens, const TrainingRoute& route) const;
  Label label(const char* purpose) const { return {purpose, static_cast<int>(place_)}; }

  const int64_t place_;
  const std::string name_;
  Communicator& workers_;
  const Parameter& expert_embeddings_;  // [E, D]
  ExpertStack experts_;
  TokenRouter router_;
};

}  // namespace ballast
