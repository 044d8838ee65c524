// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "ballast/experts/routing.h"

namespace ballast::model {

// Leaves out a part of the numbers of a training step, others each time. Which ones is a function
// of the run's seed, the step, the place in the model, and the token's place in the whole batch:
// the same for any number of workers, and when a block is computed again.
class Dropout {
 public:
  struct Options {
    double part = 0;        // that is left out
    int64_t first_row = 0;  // of the worker's tokens, among those of all replicas
    at::Device device = at::kCPU;
  };

  Dropout() = default;  // leaves out nothing
  // REQUIRES: the routing is of a training step.
  Dropout(const Options& options, const experts::Routing& routing);

  bool is_on() const { return key_.defined(); }
  // x [T, D] -> x with zeros, the rest scaled up.
  at::Tensor after_embedding(const at::Tensor& x) const { return at_place(x, 0); }
  at::Tensor after_attention(const at::Tensor& x, int64_t block) const {
    return at_place(x, 1 + 2 * block);
  }
  at::Tensor after_feed_forward(const at::Tensor& x, int64_t block) const {
    return at_place(x, 2 + 2 * block);
  }

 private:
  at::Tensor at_place(const at::Tensor& x, int64_t place) const;

  Options options_;
  at::Tensor key_;  // [1] int64, of the micro-step; undefined: nothing is left out
};

}  // namespace ballast::model
