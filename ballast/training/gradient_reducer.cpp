// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/gradient_reducer.h"

#include <algorithm>
#include <iterator>

#include "ballast/training/divided_state.h"

namespace ballast::training {

using parameters::Owner;

GradientReducer::GradientReducer(const parameters::ParameterTable& table, int64_t blocks,
                                 const comm::WorkerGrid& grid, int64_t bucket_bytes)
    : table_(table),
      grid_(grid),
      bucket_bytes_(bucket_bytes),
      block_begin_(static_cast<size_t>(blocks), -1) {
  // The blocks' matrices lie together, in the order of declaration: block by block. With Adam the
  // embeddings lie before them.
  const Owner owner = grid.num_shards() > 1 ? Owner::kShard : Owner::kShared;
  for (const parameters::Segment& segment : table.segments()) {
    if (segment.owner != owner || !segment.decay || !segment.block || segment.frozen) continue;
    matrices_end_ = std::max(matrices_end_, segment.offset + segment.size);
    int64_t& begin = block_begin_.at(static_cast<size_t>(*segment.block));
    begin = begin < 0 ? segment.offset : std::min(begin, segment.offset);
  }
  for (const parameters::HeldState::Chunk& chunk : table.held().chunks()) {
    divides_matrices_ =
        divides_matrices_ || std::ranges::any_of(block_begin_, [&](int64_t begin) {
          return begin >= 0 && begin < chunk.all.end && chunk.all.begin < matrices_end_;
        });
  }
  begin();
}

void GradientReducer::send(comm::Communicator& group, int64_t begin, int64_t end) {
  if (end > begin) {
    pending_.push_back(group.begin_all_reduce(table_.gradient().narrow(0, begin, end - begin),
                                              comm::Reduction::kSum, {"gradients"}));
  }
}

void GradientReducer::send_chunks(const parameters::FlatRange& within) {
  const std::vector<parameters::HeldState::Chunk>& chunks = table_.held().chunks();
  for (size_t i = chunks.size(); i-- > 0;) {
    const auto& [all, own] = chunks[i];
    if (chunks_sent_[i] || all.begin < within.begin || all.end > within.end) continue;
    if (pending_.size() >= kChunksAtATime) pending_[pending_.size() - kChunksAtATime].wait();
    pending_.push_back(sharers_of(chunks[i], table_, grid_)
                           .begin_reduce_scatter(own.of(table_.gradient()),
                                                 all.of(table_.gradient()), comm::Reduction::kSum,
                                                 {"gradients"}));
    chunks_sent_[i] = true;
  }
}

void GradientReducer::begin() {
  pending_.clear();
  chunks_sent_.assign(table_.held().chunks().size(), false);
  sent_from_ = matrices_end_;
}

void GradientReducer::reached(int64_t block) {
  if (grid_.num_replicas() == 1) return;
  for (comm::Pending& pending : pending_) pending.done();  // moves it on
  const int64_t begin = block_begin_.at(static_cast<size_t>(block));
  if (begin < 0) return;  // all of it is frozen
  if (divides_matrices_) {
    send_chunks({begin, matrices_end_});
    return;
  }
  if ((sent_from_ - begin) * table_.gradient().element_size() < bucket_bytes_) return;
  send(grid_.replicas(), begin, sent_from_);
  sent_from_ = begin;
}

void GradientReducer::finish() {
  const bool divided = grid_.num_shards() > 1;
  const auto trained = [&](Owner first, Owner last) {
    return table_.ranges(first, last, parameters::Update::kMuon);
  };
  const auto common_to_all = [&](Owner first, Owner last) {
    std::vector<parameters::FlatRange> ranges;
    for (const parameters::FlatRange& range : trained(first, last))
      std::ranges::copy(table_.held().common(range), std::back_inserter(ranges));
    return ranges;
  };
  send_chunks({0, table_.gradient().numel()});
  if (grid_.num_replicas() > 1) {
    const Owner last = divided ? Owner::kShard : Owner::kRouter;
    for (const auto& [begin, end] : common_to_all(Owner::kShard, last)) {
      const bool holds_matrices = begin <= sent_from_ && matrices_end_ <= end;
      send(grid_.replicas(), begin, holds_matrices ? sent_from_ : end);
      if (holds_matrices) send(grid_.replicas(), matrices_end_, end);
    }
  }
  if (divided) {
    for (const auto& [begin, end] : common_to_all(Owner::kShared, Owner::kRouter))
      send(grid_.everyone(), begin, end);
  }
  for (comm::Pending& pending : pending_) pending.wait();
  // Its shards have what is shared alike but for a GPU's rounding: their mean is the same for all.
  if (divided) {
    for (const auto& range : trained(Owner::kShared, Owner::kShared))
      range.of(table_.gradient()).div_(grid_.num_shards());
  }
  begin();
}

}  // namespace ballast::training
