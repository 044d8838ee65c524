// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "ballast/comm/communicator.h"

namespace ballast::comm {

// All workers as replicas x shards: the shards of a replica hold one model together, and replicas
// have batches of their own. Worker number = replica * shards + shard. Copies share their groups;
// everyone() must outlive them all.
class WorkerGrid {
 public:
  // Each worker is a replica.
  WorkerGrid(Communicator& everyone);  // NOLINT(google-explicit-constructor): the usual grid
  // Collective where `model_parallel` shards are neither one nor all workers: the groups are split
  // off, with the engine that moves everyone's tensors now. REQUIRES: shards divide the workers.
  WorkerGrid(Communicator& everyone, int64_t model_parallel);

  Communicator& everyone() const { return *everyone_; }
  // The workers with the same shard as this one, numbered by replica.
  Communicator& replicas() const { return *replicas_; }
  // The workers of the same replica as this one, numbered by shard.
  Communicator& shards() const { return *shards_; }

  int replica() const { return replicas_->rank(); }
  int shard() const { return shards_->rank(); }
  int num_replicas() const { return replicas_->size(); }
  int num_shards() const { return shards_->size(); }

 private:
  Communicator* everyone_;
  std::shared_ptr<Communicator> replicas_, shards_;
};

}  // namespace ballast::comm
