// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/config/config.h"

namespace ballast::model {

// Parameters by what moves them.
struct UpdateCounts {
  int64_t adam = 0, muon = 0, frozen = 0;
  // What Muon computes of its matrices in a step: operations of products, and numbers that these
  // read and write.
  double muon_products = 0, muon_numbers = 0;

  int64_t trained() const { return adam + muon; }
  int64_t all() const { return adam + muon + frozen; }
};

// Of a whole model.
struct ModelUpdates {
  UpdateCounts shared, experts;  // experts: of all of them together

  int64_t trained() const { return shared.trained() + experts.trained(); }
};

// UserError: a pattern of training.freeze fits no parameter, or some experts of a layer alone; or
// nothing is left to train.
ModelUpdates count_updates(const config::Config& config);

// How many numbers a worker keeps to train its parameters, beside the weights.
struct KeptNumbers {
  double gradients = 0;
  double moments = 0;  // of Adam two for each, of Muon one; and the average
  double masters = 0;  // master weights, where the model computes in another precision
};
// Of one of `workers` that holds `shared` parameters and `experts` of its experts. With
// training.shard_optimizer the replicas divide what Adam has for the shared ones. The few that
// shards have alike are divided further, which is not counted.
KeptNumbers kept_numbers(const config::Config& config, int64_t workers, double shared,
                         double experts);

}  // namespace ballast::model
