// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/window_rounds.h"

#include <algorithm>
#include <utility>

namespace ballast::inference {
WindowRounds::WindowRounds(const batches::EvalWindows& windows, const WindowChoice& choice,
                           const ReplicaNumber& number)
    : windows_(windows),
      batch_(static_cast<uint64_t>(choice.batch)),
      wanted_(choice.max_windows ? std::min(choice.max_windows, windows.size()) : windows.size()),
      replica_(static_cast<uint64_t>(number.replica)),
      replicas_(static_cast<uint64_t>(number.replicas)) {}

uint64_t WindowRounds::size() const { return (batches() + replicas_ - 1) / replicas_; }

uint64_t WindowRounds::windows_of(uint64_t round) const {
  const uint64_t before = round * replicas_ * batch_;
  return std::min(before + replicas_ * batch_, wanted_) - before;
}

WindowRounds::Taken WindowRounds::take(uint64_t round) const {
  const uint64_t all = windows_.size();
  const uint64_t done = std::min((round * replicas_ + replica_) * batch_, wanted_);
  const uint64_t count = std::min(batch_, wanted_ - done);
  if (count == 0) {  // the others go on, and need this one
    batches::Batch idle = windows_.at(0, 1);
    std::ranges::fill(idle.targets, batches::kIgnoredTarget);
    return {.batch = std::move(idle)};
  }
  std::vector<uint64_t> taken(count);
  for (uint64_t i = 0; i < count; ++i)
    taken[i] = wanted_ == all ? done + i : (2 * (done + i) + 1) * all / (2 * wanted_);
  batches::Batch batch = windows_.at(taken);
  return {std::move(taken), std::move(batch)};
}

}  // namespace ballast::inference
