// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/batches/eval_windows.h"

namespace ballast::inference {

struct WindowChoice {
  int64_t batch = 8;         // windows at a time, on each replica
  uint64_t max_windows = 0;  // 0: all; else as many, spread evenly over the source
};

struct ReplicaNumber {
  int replica = 0, replicas = 1;
};

// Replicas go through windows in rounds: in each, every replica takes one batch. Which windows a
// batch holds does not depend on the number of replicas. Of some windows each stands in the middle
// of an equal part of the source, so that a domain gets its share of them, however domains are
// ordered.
class WindowRounds {
 public:
  // REQUIRES: the windows outlive this.
  WindowRounds(const batches::EvalWindows& windows, const WindowChoice& choice,
               const ReplicaNumber& number);

  uint64_t windows() const { return wanted_; }  // of all replicas and rounds
  uint64_t size() const;                        // rounds
  uint64_t windows_of(uint64_t round) const;    // of all replicas

  struct Taken {
    std::vector<uint64_t> windows = {};  // none: nothing is left for this replica
    batches::Batch batch;                // of those; or one row without targets
  };
  Taken take(uint64_t round) const;

 private:
  uint64_t batches() const { return (wanted_ + batch_ - 1) / batch_; }

  const batches::EvalWindows& windows_;
  uint64_t batch_, wanted_, replica_, replicas_;
};

}  // namespace ballast::inference
