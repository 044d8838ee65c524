// SPDX-License-Identifier: Apache-2.0
#include "ballast/batches/prefetcher.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ballast::batches {

Prefetcher::Prefetcher(std::function<Batch(uint64_t)> make, uint64_t count, size_t depth)
    : make_(std::move(make)), count_(count), depth_(std::max<size_t>(depth, 1)) {
  thread_ = std::jthread([this](std::stop_token stop) { work(stop); });
}

Prefetcher::~Prefetcher() = default;

void Prefetcher::work(std::stop_token stop) {
  try {
    for (uint64_t i = 0; i < count_; ++i) {
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [&] { return ready_.size() < depth_; })) return;
      }
      if (stop.stop_requested()) return;
      Batch batch = make_(i);
      const std::lock_guard lock(mutex_);
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

Batch Prefetcher::next() {
  if (taken_ == count_) throw std::out_of_range("Prefetcher: all batches were taken");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || error_; });
  if (ready_.empty()) std::rethrow_exception(error_);
  return take();
}

std::optional<Batch> Prefetcher::next_if_ready() {
  const std::lock_guard lock(mutex_);
  return ready_.empty() ? std::nullopt : std::optional(take());
}

Batch Prefetcher::take() {
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  ++taken_;
  changed_.notify_all();
  return batch;
}

}  // namespace ballast::batches
