// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "ballast/batches/batch.h"

namespace ballast::batches {

// Prepares batches on a thread of its own while the last ones are used.
class Prefetcher {
 public:
  // make(i) is called for i = 0, 1, ... count - 1 in that order, at most `depth` ahead of next().
  Prefetcher(std::function<Batch(uint64_t)> make, uint64_t count, size_t depth = 2);
  ~Prefetcher();  // waits for the call of make() that is under way, if any
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch. Throws what make() threw for it, then and ever after, and std::out_of_range
  // when all `count` were taken. For one caller at a time.
  Batch next();
  // The next batch if it is ready, else none. Neither waits nor throws: that is left to next().
  std::optional<Batch> next_if_ready();

 private:
  Batch take();  // what is ready; holding the mutex
  void work(std::stop_token stop);

  std::function<Batch(uint64_t)> make_;
  uint64_t count_;
  size_t depth_;
  uint64_t taken_ = 0;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Batch> ready_;
  std::exception_ptr error_;  // of the batch after those that are ready
  std::jthread thread_;       // last: it ends before what it uses
};

}  // namespace ballast::batches
