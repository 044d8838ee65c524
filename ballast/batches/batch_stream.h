// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ballast/batches/batch.h"
#include "ballast/batches/source_mix.h"
#include "ballast/tokens/token_source.h"

namespace ballast::batches {

struct WeightedSource {
  std::shared_ptr<const tokens::TokenSource> tokens;
  double weight = 1;
};

struct BatchShape {
  int64_t context = 0;       // tokens in a row
  int64_t global_batch = 0;  // rows in a step, over all workers and micro-steps
  int64_t micro_steps = 1;   // the global batch is computed in this many parts, one after another
  uint64_t seed = 0;
};

// Training batches as a pure function of the step. Rows are windows of context + 1 tokens; where
// one ends the next begins with the same token, so that an epoch predicts each token once. In each
// epoch of a source the windows begin at another offset (the source is a ring: one window may lead
// from its end to its beginning) and come in another order; size mod context tokens are left out.
// Documents are packed: a window may hold several, with end-of-text between them, and attention may
// cross it, as in GPT-2.
class BatchStream {
 public:
  // Throws UserError for weights that are not positive, sources shorter than context + 1 tokens or
  // from different tokenizers, and a global batch that the micro-steps do not divide.
  BatchStream(std::vector<WeightedSource> sources, const BatchShape& shape);

  // Rows of a worker in one micro-step. The rows of a step are numbered once and for all:
  // micro-steps take them in turn, and within one rank r of `world` takes the r-th part. Throws
  // UserError if the workers do not divide the rows. Thread-safe.
  Batch at(uint64_t step, int64_t micro_step, int64_t rank, int64_t world) const;

  // Where a row of the whole run (step * global_batch + row within the step) is read from.
  struct Window {
    size_t source;
    uint64_t epoch;
    uint64_t first_token;  // wraps at the end of the source
  };
  Window window(uint64_t row) const;

  const BatchShape& shape() const { return shape_; }
  uint64_t windows_per_epoch(size_t source) const;
  // Epochs of a source that are begun or done after `steps` steps, as a fraction.
  double epochs(size_t source, uint64_t steps) const;

 private:
  void read_row(const Window& window, std::span<int64_t> inputs, std::span<int64_t> targets) const;

  std::vector<WeightedSource> sources_;
  BatchShape shape_;
  SourceMix mix_;
};

}  // namespace ballast::batches
