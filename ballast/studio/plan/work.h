// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/config/config.h"
#include "ballast/studio/plan/device.h"
#include "ballast/studio/plan/plan.h"

namespace ballast::plan {

// Of gradients whose state is divided, a chunk (training/gradient_reducer.h).
inline constexpr double kChunkBytes = 8 * 1048576.0;

// What one worker computes, counted from the operations of `model`, `experts` and `training`.
struct Work {
  double products = 0;    // floating-point operations of matrix products, and
  double attention = 0;   // of those between queries, keys and values, which are slower
  double bytes = 0;       // read and written by all operations, products too
  double operations = 0;  // that are started

  Work& operator+=(const Work& other);
  Work operator*(double times) const;
};

// Nothing goes on at the same time as anything else.
double seconds_of(const Work& work, const Device& device);

// The sizes that decide it, of one way to divide the model.
struct LayoutShape {
  // REQUIRES: check_workers is content with both; groups are known.
  LayoutShape(const config::Config& config, int64_t workers, const Device& device);

  config::Config config;
  int64_t workers, shards, replicas;
  double width, hidden, blocks, feed_forwards;  // feed_forwards: of the blocks that have one
  double queries, keys;                         // widths of all heads of queries, and of keys
  double matrices;                              // of a feed-forward: 2, or 3 with a gate
  double tokens;                                // of a replica's micro-step
  double own_tokens;         // the part of them that a worker brings to a layer of experts
  double number;             // bytes of one, as the model computes
  double expert_rows;        // of a worker's experts, in a layer and micro-step, filled-up ones too
  double expert_layers;      // N
  double expert_hidden;      // F of an expert, and
  double shared_hidden;      // of the one for all tokens; 0: there is none
  double expert_sublayers;   // of one layer
  double experts_here;       // of one layer
  double parameters;         // of a worker
  double expert_parameters;  // those of its experts
  bool is_cpu;
  bool fused;
  bool recomputes_blocks;

  double rows_of_logits() const;  // of a chunk
  double chunks_of_rows() const;  // in which rows go to experts; 1: all at once
  // Whether a shuffle moves rows: a worker that is alone leaves them where they are.
  bool shuffles() const {
    const config::ExpertsConfig& e = config.experts;
    return workers > 1 && e.traits().balanced && e.shuffle && e.groups > 1;
  }
};

// Of a micro-step, forward and backward.
Work attention_work(const LayoutShape& shape);
Work feed_forward_work(const LayoutShape& shape);
Work experts_work(const LayoutShape& shape);
// The part of it that a layer's experts compute of the rows that were brought to them.
Work routed_rows_work(const LayoutShape& shape);
Work vocabulary_work(const LayoutShape& shape);
// Of a step: clears the gradients, takes their norm, moves the weights.
Work optimizer_work(const LayoutShape& shape, const Device& device);

MemoryParts memory_of(const LayoutShape& shape, const Device& device);
// Whether it takes at most 95 % of the device's memory: the rest is for libraries and rounding.
// Always true where the memory is not known.
bool fits(const MemoryParts& memory, const Device& device);

}  // namespace ballast::plan
