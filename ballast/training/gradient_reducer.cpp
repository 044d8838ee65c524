// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/gradient_reducer.h"

#include <algorithm>
#include <string>

namespace ballast {

GradientReducer::GradientReducer(const ParameterTable& table, int64_t blocks, Communicator& workers,
                                 int64_t bucket_bytes)
    : table_(table),
      workers_(workers),
      bucket_bytes_(bucket_bytes),
      block_begin_(static_cast<size_t>(blocks), -1) {
  // The shared matrices come first, in the order of declaration: embeddings, then block by block.
  for (const Segment& segment : table.segments()) {
    if (segment.owner != Owner::kShared || !segment.decay || segment.frozen) continue;
    matrices_end_ = std::max(matrices_end_, segment.offset + segment.size);
    if (!segment.name.starts_with("block.")) continue;
    int64_t& begin = block_begin_.at(static_cast<size_t>(std::stoll(segment.name.substr(6))));
    begin = begin < 0 ? segment.offset : std::min(begin, segment.offset);
  }
  sent_from_ = matrices_end_;
}

void GradientReducer::send(int64_t begin, int64_t end) {
  if (end > begin) {
    pending_.push_back(workers_.begin_all_reduce(table_.gradient().narrow(0, begin, end - begin),
                                                 Reduction::kSum, {"gradients"}));
  }
}

void GradientReducer::reached(int64_t block) {
  if (workers_.size() == 1) return;
  for (Pending& pending : pending_) pending.done();  // moves it on
  const int64_t begin = block_begin_.at(static_cast<size_t>(block));
  if ((sent_from_ - begin) * table_.gradient().element_size() < bucket_bytes_) return;
  send(begin, sent_from_);
  sent_from_ = begin;
}

void GradientReducer::finish() {
  if (workers_.size() > 1) {
    send(0, sent_from_);
    send(matrices_end_, table_.shared_end());
    for (Pending& pending : pending_) pending.wait();
  }
  pending_.clear();
  sent_from_ = matrices_end_;
}

}  // namespace ballast
