// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ballast/comm/message_mover_mpi.h"
#include "ballast/comm/roll_call.h"
#include "ballast/comm/world.h"

namespace ballast::comm {

// A collective that MPI works on, and all that must live as long.
struct MpiTransfer {
  std::vector<MPI_Request> requests;
  std::vector<at::Tensor> kept;
  std::vector<std::vector<int>> counts;
  std::function<void()> finish;  // brings results from the host to where they belong; may be empty
  CallRecord call;
  // Once it has ended, well or not, what MPI said of it.
  std::optional<int> code = {};
};

// What all MPI communicators of a process share. MPI is used by one thread at a time (backward
// passes on a GPU run in threads of libtorch's own, and a thread moves messages).
class MpiRuntime {
 public:
  // Starts MPI. UserError: it was started before, or cannot serve threads in turn.
  explicit MpiRuntime(const WorldOptions& options);

  int rank() const { return roll_call_->rank(); }
  int size() const { return roll_call_->size(); }
  const std::shared_ptr<RollCall>& roll_call() const { return roll_call_; }
  PlaceOnMachine place() const { return place_; }

  // Begins a collective: writes down that this worker has come, then calls `issue`, which appends
  // to the transfer's requests, with the lock held.
  std::unique_ptr<MpiTransfer> begin(MpiTransfer transfer,
                                     const std::function<void(MpiTransfer&)>& issue);
  bool test(MpiTransfer& transfer);
  // Returns when the transfer has ended. WorkersLost: see Pending::wait().
  void wait(MpiTransfer& transfer);
  // Keeps a transfer that nobody waits for until it has ended.
  void adopt(std::unique_ptr<MpiTransfer> transfer);
  // Waits for all that was adopted, then ends MPI.
  void finalize();
  // Stops the thread that moves messages, before MPI is aborted.
  void stop_mover();

  std::mutex& mutex() { return mutex_; }
  // Throws UserError with MPI's own text for a code that is no success.
  static void check(int code, const std::string& text);

 private:
  void open_roll_call();
  // Moves it on. REQUIRES: the lock is held.
  void look_at(MpiTransfer& transfer);

  std::mutex mutex_;
  PlaceOnMachine place_;
  // Until then it is assumed that something else computes on this worker's core.
  std::atomic<std::chrono::steady_clock::time_point> shares_core_until_{};
  std::shared_ptr<RollCall> roll_call_;
  std::vector<std::unique_ptr<MpiTransfer>> adopted_;
  // Null: all workers are on one machine. Last: it ends first.
  std::unique_ptr<MessageMover> mover_;
};

}  // namespace ballast::comm
