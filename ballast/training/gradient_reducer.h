// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "ballast/comm/worker_grid.h"
#include "ballast/model/language_model.h"
#include "ballast/parameters/parameter_table.h"

namespace ballast::training {

// Sums gradients over workers, so that all have those of the whole batch. Those of a shard's
// parameters are summed over the replicas, those of what all hold over everyone. They go in buckets
// while the backward pass goes on: each has the matrices of a few blocks; the last has what is
// left. Of a chunk whose state is divided, each worker gets the sum of its part alone, and what is
// left in the others' parts is of no use.
class GradientReducer : public model::BackwardProgress {
 public:
  static constexpr int64_t kBucketBytes = 8 << 20;
  // MPI needs up to three times a chunk to sum it: this many are under way at a time.
  static constexpr size_t kChunksAtATime = 4;

  // A bucket of fewer than `bucket_bytes` waits for the next block. REQUIRES: the table is
  // allocated, its model has `blocks` blocks; table and everyone() outlive this.
  GradientReducer(const parameters::ParameterTable& table, int64_t blocks,
                  const comm::WorkerGrid& grid, int64_t bucket_bytes = kBucketBytes);

  // A step begins. What a step left that failed before finish() is forgotten.
  void begin();
  void reached(int64_t block) override;
  // Sends what is left, and returns when all sums are there. Collective, once a step.
  void finish();

 private:
  void send(comm::Communicator& group, int64_t begin, int64_t end);
  void send_chunks(const parameters::FlatRange& within);  // those that were not sent before

  const parameters::ParameterTable& table_;
  const comm::WorkerGrid grid_;
  const int64_t bucket_bytes_;
  std::vector<int64_t> block_begin_;  // of each block's matrices in the flat buffers
  int64_t matrices_end_ = 0;
  bool divides_matrices_ = false;  // their state is: they go in chunks
  int64_t sent_from_ = 0;          // [sent_from_, matrices_end_) is under way
  std::vector<bool> chunks_sent_;
  std::vector<comm::Pending> pending_;
};

}  // namespace ballast::training
