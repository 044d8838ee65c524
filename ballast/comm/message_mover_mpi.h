// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>

namespace ballast::comm {

// Moves messages on while their worker computes. OpenMPI does so in its own calls alone: a message
// above 64 KiB would wait until the worker comes back to MPI. A thread that mostly sleeps looks at
// what is under way once a millisecond, and not at all while the worker itself waits in MPI.
class MessageMover {
 public:
  // `mpi`: held by whoever uses MPI. REQUIRES: it outlives this.
  explicit MessageMover(std::mutex& mpi);
  ~MessageMover();
  MessageMover(const MessageMover&) = delete;
  MessageMover& operator=(const MessageMover&) = delete;

  // A call has begun or ended.
  void began();
  void ended();
  // A worker's thread begins to wait in MPI, or has done so.
  void waits(bool begins);
  // Nothing is moved any more.
  void stop();
  // What MPI was asked for is asked for no more. REQUIRES: stopped; MPI is held, and has not ended.
  void forget();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ballast::comm
