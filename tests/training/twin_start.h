// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ops/empty.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "ballast/config/config.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::test::twin {

// Where runs start that are compared with the PyTorch twin's (benchmarks/twin/record_losses.py):
// weights and tokens are given by a formula.

inline uint64_t scramble(uint64_t stream, uint64_t i) {
  constexpr uint64_t kMask = 0xFFFFFFFF;
  uint64_t x = (i * 2654435761 + stream * 97586753 + 12345) & kMask;
  x ^= x >> 15;
  x = x * 2246822519 & kMask;
  return x ^ (x >> 13);
}

inline void set_weights(parameters::ParameterTable& table) {
  for (size_t k = 0; k < table.segments().size(); ++k) {
    const parameters::Segment& segment = table.segments()[k];
    const bool is_norm_weight =
        segment.initialization.kind == parameters::Initialization::Kind::kOne;
    at::Tensor values = at::empty({segment.size}, at::kFloat);
    for (int64_t i = 0; i < segment.size; ++i) {
      const double value =
          (static_cast<double>(scramble(k, static_cast<uint64_t>(i))) / 4294967296.0 - 0.5) * 0.2;
      values.data_ptr<float>()[i] = static_cast<float>(value + (is_norm_weight ? 1 : 0));
    }
    table.view(table.master(), segment).copy_(values.view(segment.shape));
  }
  table.copy_master_to_working();
}

// Its shape and its training; the frame of routers is the twin's, too.
inline config::Config config_of(const nlohmann::json& golden) {
  config::Config config;
  config::take_papers_frame(config.experts);  // the twin's
  const auto& shape = golden["shape"];
  config.model.vocabulary = shape["vocabulary"];
  config.model.width = shape["width"];
  config.model.layers = shape["layers"];
  config.model.heads = shape["heads"];
  config.model.context = shape["context"];
  const auto& training = golden["training"];
  config.training.batch = shape["batch"];
  config.training.steps = training["steps"];
  config.optimizer.learning_rate = training["learning_rate"];
  config.optimizer.warmup_steps = training["warmup_steps"];
  config.optimizer.beta1 = training["beta1"];
  config.optimizer.beta2 = training["beta2"];
  config.optimizer.epsilon = training["epsilon"];
  config.optimizer.weight_decay = training["weight_decay"];
  config.optimizer.clip_norm = training["clip_norm"];
  return config;
}

inline at::Tensor tokens_of(const config::Config& config, int64_t step) {
  at::Tensor tokens = at::empty({config.training.batch, config.model.context + 1}, at::kLong);
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    tokens.data_ptr<int64_t>()[i] = static_cast<int64_t>(
        scramble(static_cast<uint64_t>(1000 + step % 3), static_cast<uint64_t>(i)) %
        static_cast<uint64_t>(config.model.vocabulary));
  }
  return tokens;
}

}  // namespace ballast::test::twin
