// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/feed_forward.h"

#include <string>
#include <vector>

#include "ballast/experts/decoder_parts.h"
#include "ballast/kernels/linear.h"
#include "ballast/model/initialization.h"
#include "ballast/model/shard_layers.h"

namespace ballast::model {
namespace {

std::string name_of(int64_t block) { return "block." + std::to_string(block) + ".feed_forward"; }

// Rows of what comes before the activation; of a gated one the gate's first.
std::vector<int64_t> inner_rows(const config::ModelConfig& config) {
  const int64_t width = config.feed_forward_width();
  return config.is_gated() ? std::vector{width, width} : std::vector{width};
}

const kernels::Parameter& declare_up_bias(const config::ModelConfig& config, int64_t block,
                                          parameters::ParameterTable& table,
                                          const comm::Communicator& shards) {
  if (!config.has_biases()) return kernels::no_parameter();
  return table.declare(parameters::divided(vectors(name_of(block) + ".up.bias", inner_rows(config)),
                                           division(shards, 0)));
}

const kernels::Parameter& declare_down_bias(const config::ModelConfig& config, int64_t block,
                                            parameters::ParameterTable& table) {
  if (!config.has_biases()) return kernels::no_parameter();
  return table.declare(
      vector(name_of(block) + ".down.bias", config.width, parameters::Initialization::zero()));
}

}  // namespace

FeedForward::FeedForward(const config::ModelConfig& config, int64_t block,
                         parameters::ParameterTable& table, comm::Communicator& shards)
    : block_(block),
      activation_(experts::activation_of(config)),
      shards_(shards),
      norm_(config, name_of(block) + ".norm", table),
      up_(table.declare(parameters::divided(
          multiplied(matrices(name_of(block) + ".up.weight", inner_rows(config), config.width)),
          division(shards, 0)))),
      up_bias_(declare_up_bias(config, block, table, shards)),
      down_(table.declare(parameters::divided(
          multiplied(residual_matrix(name_of(block) + ".down.weight", config.width,
                                     config.feed_forward_width(), config)),
          division(shards, 1)))),
      down_bias_(declare_down_bias(config, block, table)) {}

at::Tensor FeedForward::forward(ResidualStream& x, step::StepWatch* watch,
                                BiasGradient of_down_bias) const {
  const ShardCall call{shards_, {"feed-forward", static_cast<int>(block_)}, watch};
  const kernels::Parameter down_bias = bias_of(down_bias_, of_down_bias);
  return sum_of_shard_feed_forwards(call, norm_(x), {up_, up_bias_, down_, down_bias, activation_});
}

}  // namespace ballast::model
