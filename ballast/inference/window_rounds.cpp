// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/window_rounds.h"

#include <algorithm>
#include <utility>

namespace ballast {
WindowRounds::WindowRounds(const EvalWindows& windows, const WindowChoice& choice,
                           const WorkerNumber& worker)
    : windows_(windows),
      batch_(static_cast<uint64_t>(choice.batch)),
      together_(static_cast<uint64_t>(choice.together > 0 ? choice.together : choice.batch)),
      wanted_(choice.max_windows ? std::min(choice.max_windows, windows.size()) : windows.size()),
      rank_(static_cast<uint64_t>(worker.rank)),
      workers_(static_cast<uint64_t>(worker.workers)) {}

uint64_t WindowRounds::size() const { return (batches() + workers_ - 1) / workers_; }

uint64_t WindowRounds::windows_of(uint64_t round) const {
  const uint64_t before = round * workers_ * batch_;
  return std::min(before + workers_ * batch_, wanted_) - before;
}

WindowRounds::Taken WindowRounds::take(uint64_t round) const {
  const uint64_t all = windows_.size();
  const uint64_t done = std::min((round * workers_ + rank_) * batch_, wanted_);
  const uint64_t count = std::min(batch_, wanted_ - done);
  if (count == 0) {  // the others go on, and need this one
    Batch idle = windows_.at(0, 1);
    std::ranges::fill(idle.targets, kIgnoredTarget);
    return {.batch = std::move(idle)};
  }
  uint64_t first = done;
  if (wanted_ < all) {
    const uint64_t before = done / together_ * together_;  // windows that lie elsewhere
    const uint64_t side_by_side = std::min(together_, wanted_ - before);
    first = done - before +
            before * (all - side_by_side) / std::max<uint64_t>(1, wanted_ - side_by_side);
  }
  return {first, count, windows_.at(first, count)};
}

}  // namespace ballast
