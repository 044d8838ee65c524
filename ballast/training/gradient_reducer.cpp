// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/gradient_reducer.h"

#include <algorithm>

namespace ballast::training {

GradientReducer::GradientReducer(const parameters::ParameterTable& table, int64_t blocks,
                                 const comm::WorkerGrid& grid, int64_t bucket_bytes)
    : table_(table),
      grid_(grid),
      bucket_bytes_(bucket_bytes),
      block_begin_(static_cast<size_t>(blocks), -1) {
  // The blocks' matrices come first, in the order of declaration: embeddings, then block by block.
  const parameters::Owner owner =
      grid.num_shards() > 1 ? parameters::Owner::kShard : parameters::Owner::kShared;
  for (const parameters::Segment& segment : table.segments()) {
    if (segment.owner != owner || !segment.decay || segment.frozen) continue;
    matrices_end_ = std::max(matrices_end_, segment.offset + segment.size);
    if (!segment.block) continue;
    int64_t& begin = block_begin_.at(static_cast<size_t>(*segment.block));
    begin = begin < 0 ? segment.offset : std::min(begin, segment.offset);
  }
  begin();
}

void GradientReducer::send(comm::Communicator& group, int64_t begin, int64_t end) {
  if (end > begin) {
    pending_.push_back(group.begin_all_reduce(table_.gradient().narrow(0, begin, end - begin),
                                              comm::Reduction::kSum, {"gradients"}));
  }
}

void GradientReducer::begin() {
  pending_.clear();
  sent_from_ = matrices_end_;
}

void GradientReducer::reached(int64_t block) {
  if (grid_.num_replicas() == 1) return;
  for (comm::Pending& pending : pending_) pending.done();  // moves it on
  const int64_t begin = block_begin_.at(static_cast<size_t>(block));
  if ((sent_from_ - begin) * table_.gradient().element_size() < bucket_bytes_) return;
  send(grid_.replicas(), begin, sent_from_);
  sent_from_ = begin;
}

void GradientReducer::finish() {
  const bool divided = grid_.num_shards() > 1;
  if (grid_.everyone().size() > 1) {
    const int64_t held_by_all =
        divided ? table_.range(parameters::Owner::kShard).end : matrices_end_;
    if (grid_.num_replicas() > 1) {
      send(grid_.replicas(), 0, sent_from_);
      send(grid_.replicas(), matrices_end_, held_by_all);
    }
    send(grid_.everyone(), held_by_all, table_.range(parameters::Owner::kRouter).end);
    for (comm::Pending& pending : pending_) pending.wait();
  }
  // Its shards have what is shared alike but for a GPU's rounding: their mean is the same for all.
  if (divided)
    table_.range(parameters::Owner::kShared).of(table_.gradient()).div_(grid_.num_shards());
  begin();
}

}  // namespace ballast::training
