// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <mpi.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ballast/comm/arrivals.h"
#include "ballast/comm/world.h"

namespace ballast {

// A group of workers as messages know it.
struct MpiGroup {
  uint64_t id = 0;
  std::string name;
  std::vector<int> others;  // the other members, numbered as in the world
};

// A collective that MPI works on, and all that must live as long.
struct MpiTransfer {
  std::vector<MPI_Request> requests;
  std::vector<at::Tensor> kept;
  std::vector<std::vector<int>> counts;
  std::function<void()> finish;  // brings results from the host to where they belong; may be empty
  std::shared_ptr<const MpiGroup> group;
  CallNumber call;
  std::string text;  // "all_to_all (experts, layer 6) of float32 [96, 32] to float32 [96, 32]"
};

// What all MPI communicators of a process share. MPI is used by one thread at a time (backward
// passes on a GPU run in threads of libtorch's own).
class MpiRuntime {
 public:
  // Starts MPI. UserError: it was started before, or cannot serve threads in turn.
  explicit MpiRuntime(const WorldOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }
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

  std::mutex& mutex() { return mutex_; }
  // Throws UserError with MPI's own text for a code that is none of success.
  static void check(int code, const std::string& text);

 private:
  void open_arrivals();
  bool is_gone(const MpiTransfer& transfer) const;
  std::string missing(const MpiTransfer& transfer) const;
  [[noreturn]] void give_up(const MpiTransfer& transfer, double seconds, const char* why) const;

  const double deadline_seconds_;
  std::mutex mutex_;
  int rank_ = 0, size_ = 1;
  PlaceOnMachine place_;
  std::optional<Arrivals> arrivals_;
  bool arrivals_work_ = false;
  std::vector<std::unique_ptr<MpiTransfer>> adopted_;
};

}  // namespace ballast
