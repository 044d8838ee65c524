// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/studio/plan/device.h"
#include "ballast/studio/plan/network.h"

namespace ballast::plan {

// The cost model: what a model takes of each worker's memory, and how long its steps take, from its
// shapes and the rates of a cluster alone. docs/plan.md has every formula, and how far off it is.

struct Cluster {
  int64_t workers = 1;
  Device device;  // a GPU, or the CPU of a machine with all its cores and memory
  Network network;
  // Whether sums of gradients go on under the last micro-step's backward pass.
  bool overlap_gradients = false;
  // Seconds of the balanced assignments of a layer and micro-step; none: this program's solver.
  std::optional<double> assignment_seconds = std::nullopt;

  // What one worker has: a GPU of its own, or its share of a CPU's rates and memory.
  Device of_worker() const;
};

// Bytes of one worker, the most of all.
struct MemoryParts {
  double weights = 0;  // with the master copy
  double gradients = 0;
  double optimizer = 0;    // Adam's moments
  double activations = 0;  // of a micro-step, kept for its backward pass
  double buffers = 0;      // logits of some rows, what a layer's backward pass needs, messages

  double total() const { return weights + gradients + optimizer + activations + buffers; }
};

// Seconds of a step, all micro-steps together.
struct StepParts {
  double attention = 0;
  double feed_forward = 0;
  double experts = 0;     // with their routers and moves of rows
  double assignment = 0;  // BASE layers' alone
  double vocabulary = 0;  // embeddings, logits, loss
  double optimizer = 0;
  double gradient_sums = 0;  // all_reduce of gradients, as far as nothing hides it
  double all_to_all = 0;     // of layers of experts
  double shard_sums = 0;     // of model parallel workers

  double compute() const { return attention + feed_forward + experts + vocabulary; }
  double communication() const { return gradient_sums + all_to_all + shard_sums; }
  double total() const { return compute() + assignment + optimizer + communication(); }
};

// One way to divide the model among the workers.
struct LayoutPlan {
  int64_t model_parallel = 1;  // workers that hold a replica together
  int64_t replicas = 1;
  int64_t experts_per_worker = 0;  // of each layer of experts
  int64_t micro_steps = 1;
  int64_t tokens_per_micro_step = 0;  // of a replica
  std::string words;                  // "data parallel, 1 expert a worker"
  MemoryParts memory;
  StepParts step;
  double tokens_per_second = 0;  // of all workers
  bool fits = true;              // its memory
};

// A layout that this model or number of workers does not allow.
struct RefusedLayout {
  int64_t model_parallel = 1;
  std::string reason;
};

struct Plan {
  // The config's own first, then model parallel by 1, 2, 4 and 8 as far as there are workers.
  std::vector<LayoutPlan> layouts;
  std::vector<RefusedLayout> refused;
  // Where its own does not fit the memory: what would, the least change first. Empty: it fits, or
  // nothing that was tried does.
  std::vector<std::string> advice;

  const LayoutPlan& own() const { return layouts.front(); }
};

// Throws UserError where the config does not suit the number of workers, or a rate of the device is
// not known. REQUIRES: config.model.vocabulary > 0. experts.groups 0 is the number of workers.
Plan make_plan(const config::Config& config, const Cluster& cluster);

}  // namespace ballast::plan
