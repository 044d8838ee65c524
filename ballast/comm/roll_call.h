// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ballast/comm/arrivals.h"

namespace ballast::comm {

// A group of workers as messages know it.
struct WorkerGroup {
  uint64_t id = 0;
  std::string name;
  std::vector<int> members;  // numbered as in the world, in the group's order
};

// A call that this worker has begun.
struct CallRecord {
  std::shared_ptr<const WorkerGroup> group;
  CallNumber number;
  std::string text;  // "all_to_all (experts, layer 6) of float32 [96, 32] to float32 [96, 32]"
};

// Who is there and who is missing, for all engines of a world. Thread-safe.
class RollCall {
 public:
  RollCall(int rank, int size, double deadline_seconds);

  int rank() const { return rank_; }
  int size() const { return size_; }
  double deadline_seconds() const { return deadline_seconds_; }

  // From now on others can be asked. `works`: all workers reached each other at the start.
  // `machines`: the name of each worker's, where there are several; else empty.
  void open(std::unique_ptr<Arrivals> arrivals, bool works, std::vector<std::string> machines);

  // Writes down that this worker has begun a call; and whether it waits in it.
  void began(const CallRecord& call);
  void waits(bool waiting);

  // Whether a member of the call's group has ended. Takes up to a tenth of a second.
  bool is_gone(const CallRecord& call) const;
  // Lines that name who is missing from a call, each after a line break. Workers outside of its
  // group that are missing are named too: somebody in it may wait for them. Takes up to a second.
  std::string missing(const CallRecord& call) const;

  // From now on check() throws WorkersLost with this message: all engines stop when one has lost a
  // worker, since results may be wrong. The first message stays.
  void lose(std::string message);
  void check() const;

 private:
  // Of all workers but this one, those of the group first; and how many these are.
  std::pair<std::vector<int>, size_t> others(const WorkerGroup& group) const;

  const int rank_, size_;
  const double deadline_seconds_;
  std::unique_ptr<Arrivals> arrivals_;  // null: nobody to ask
  bool works_ = false;
  std::vector<std::string> machines_;
  mutable std::mutex mutex_;
  std::optional<std::string> lost_;
};

// How long one call is waited for: to the deadline, or until a member of its group has ended.
class Patience {
 public:
  Patience(const RollCall& roll_call, const CallRecord& call);

  // Tells how long the call has been waited for in all; never less than before. WorkersLost: that
  // was long enough.
  void waited(double seconds);

 private:
  [[noreturn]] void give_up(double seconds, const char* why) const;

  const RollCall& roll_call_;
  const CallRecord& call_;
  double next_look_;
  int times_gone_ = 0;
};

}  // namespace ballast::comm
