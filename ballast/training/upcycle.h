// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/checkpoint/checkpoint.h"
#include "ballast/config/config.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::training {

struct Upcycling {
  double noise = 0.01;  // deviation of what is added to a copied matrix, in its own
  uint64_t seed = 0;
};

// Fills the experts that stand for feed-forwards of the checkpoint's dense model with copies of
// these, each with noise of its own, so that they can part; their norms, or the layer's, are those
// of the feed-forwards. Output matrices are multiplied so that the weights of a fresh gate sum to
// about one: the model starts near the dense one. Routers stay as they are.
// UserError: the experts are none that a feed-forward can be copied to, or it has none.
void copy_feed_forwards(const checkpoint::Checkpoint& checkpoint, const config::Config& config,
                        const Upcycling& upcycling, parameters::ParameterTable& table);

// What the output of a copied feed-forward is multiplied by.
double scale_of_copies(const config::ExpertsConfig& experts);

}  // namespace ballast::training
