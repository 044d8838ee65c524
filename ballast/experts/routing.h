// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "ballast/experts/expert_mlp.h"
#include "ballast/experts/routing_sum_order.h"
#include "ballast/step/device_timer.h"
#include "ballast/step/step_inputs.h"
#include "ballast/step/step_watch.h"

namespace ballast::experts {

// How tokens find their experts. Always said, never inferred.
enum class RoutingMode {
  kBalanced,  // training: every expert gets the same number of tokens (BASE), or at most its
              // capacity
  kGreedy,    // test: each token goes to its best expert
  kPriced,    // test: to the best expert after the average prices of training
};

RoutingMode parse_routing_mode(std::string_view name);  // UserError lists the names
std::string_view routing_name(RoutingMode mode);        // "balanced", "greedy", "priced"

// The micro-step of a training run that a routing belongs to. All workers route together: tokens
// are cut into groups, the same number on each worker, and each group is assigned by itself.
struct TrainingRoute {
  int64_t groups = 1;   // routing groups G of the micro-step, over all workers
  bool shuffle = true;  // BASE layers alone
  uint64_t seed = 0, step = 0, micro_step = 0;
  int64_t micro_steps = 1;  // of the step: what balance losses are averaged over, beside groups
  int64_t averaged = 1;     // workers over which gradients are averaged later, not summed
};

// What a layer decided for this worker's tokens, in their order.
struct SeenRoute {
  int64_t layer = 0;           // blocks before it
  at::Tensor expert_of_token;  // [T] int64
  at::Tensor scores;  // [T, E] fp32, what was compared: affinities, less prices if priced; logits
  // [T] int64; undefined: tokens go to one expert. Of more than two the others are not told.
  at::Tensor second_of_token = {};
  int64_t first_token = 0;  // of these, among the tokens of the worker's replica
};

// Keeps assignments and repeats them. So two runs can be compared number by number, although
// rounding might decide a near-tie differently.
class RouteTape {
 public:
  struct Key {
    uint64_t step = 0, micro_step = 0;
    int64_t layer = 0, first_group = 0;
  };
  virtual ~RouteTape() = default;
  // The experts [P, T/G] (int32) to use for P groups from first_group on; undefined: choose them.
  // Where tokens go to K, [P, K T/G]: first all first ones. What is drawn or dropped after the
  // choice is not kept.
  virtual at::Tensor replay(const Key& key, int64_t groups) = 0;
  virtual void record(const Key& key, const at::Tensor& expert_of_token) = 0;
};

class PassShuffles;

struct Routing {
  RoutingMode mode = RoutingMode::kGreedy;
  // Only with kBalanced. Without it a worker's tokens are one group, not shuffled. Sparsely Gated
  // and Switch layers take kBalanced in training only, and never kPriced.
  std::optional<TrainingRoute> training = {};
  // [T] bool, not in training; undefined: all count. Tokens that do not count are padding:
  // kBalanced balances without them.
  at::Tensor counted = {};
  std::function<void(const SeenRoute&)> seen = {};  // not called in training
  RouteTape* tape = nullptr;                        // used in training alone
  PassShuffles* shuffles = nullptr;                 // of all layers; null: each draws its own
  // What backward does with the gradients of the experts' matrices: written, over what is there.
  MatrixGradients gradients = MatrixGradients::kAdded;
  step::StepInputs* inputs =
      nullptr;  // of the step; null: each input is copied to the device by itself
  step::StepWatch* watch = nullptr;  // told which part of the step goes on; outlives backward
};

// What a layer observed of its routing in training.
struct RoutingStats {
  // [kRoutingSums + E] float64, of gates [kRoutingSums], on the layer's device (routing_sums.h);
  // undefined: it has seen nothing.
  at::Tensor sums;
  std::vector<at::Tensor> statuses;  // of the assignments, as TensorAssignment has them
  step::DeviceTimer assigning;       // affinities and assignment; gates and places

  double sum(RoutingSum which) const;  // waits for the device
  at::Tensor price_sum() const;        // [E]: prices less their mean, of all groups; of gates [0]
};

}  // namespace ballast::experts
