// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "ballast/batches/eval_windows.h"

namespace ballast::inference {

struct WindowChoice {
  int64_t batch = 8;         // windows at a time, on each replica
  uint64_t max_windows = 0;  // 0: all; else as many, spread evenly over the source
  int64_t together = 0;      // windows that lie side by side there, a multiple of batch; 0: batch
};

struct ReplicaNumber {
  int replica = 0, replicas = 1;
};

// Replicas go through windows in rounds: in each, every replica takes one batch. Which windows a
// batch holds does not depend on the number of replicas.
class WindowRounds {
 public:
  // REQUIRES: the windows outlive this.
  WindowRounds(const batches::EvalWindows& windows, const WindowChoice& choice,
               const ReplicaNumber& number);

  uint64_t windows() const { return wanted_; }  // of all replicas and rounds
  uint64_t size() const;                        // rounds
  uint64_t windows_of(uint64_t round) const;    // of all replicas

  struct Taken {
    uint64_t first = 0, count = 0;  // windows; none: nothing is left for this replica
    batches::Batch batch;           // of those; or one row without targets
  };
  Taken take(uint64_t round) const;

 private:
  uint64_t batches() const { return (wanted_ + batch_ - 1) / batch_; }

  const batches::EvalWindows& windows_;
  uint64_t batch_, together_, wanted_, replica_, replicas_;
};

}  // namespace ballast::inference
