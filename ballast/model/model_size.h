// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ballast/config/config.h"

namespace ballast::model {

struct ModelSize {
  int64_t shared = 0;          // parameters of all but the experts
  int64_t per_expert = 0;      // of one expert, in all layers of experts together
  int64_t total = 0;           // shared + experts * per_expert
  int64_t active = 0;          // those a token meets: shared + experts_of_token * per_expert
  double flops_per_token = 0;  // of a training step: forward and backward, attention included
};

// Counted from the shapes. A matrix of n weights costs 6 n operations a token (2 forward, 4
// backward); causal attention 6 L D S on average (D: all heads of the queries); a router 2 D E
// where its affinities have no gradient (base) and 6 D E where they have (a gate). No token is
// dropped; embedding look-ups, norms and the balance loss are not counted.
ModelSize model_size(const config::Config& config);

// Parameters that one of `workers` holds, the most of all: its part of the experts, and of the rest
// the part that training.model_parallel leaves it. Attention, feed-forwards and the vocabulary are
// divided; norms, positions, routers and the biases of output projections are not.
// REQUIRES: check_workers is content.
int64_t parameters_of_worker(const config::Config& config, int64_t workers);

// What a parameter takes while it is trained, in bytes.
struct ParameterBytes {
  int64_t weights = 0;    // with the master copy, where the model computes in another precision
  int64_t master = 0;     // of these, the master copy
  int64_t gradients = 0;  // in the model's precision
  int64_t moments = 0;    // Adam's two, in the master's

  int64_t total() const { return weights + gradients + moments; }
};

// `working`: bytes of a number as the model computes with it; `master`: as weights are kept.
ParameterBytes bytes_of_parameter(int64_t working, int64_t master);

}  // namespace ballast::model
