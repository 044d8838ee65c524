// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/message_mover_mpi.h"

#include <mpi.h>

#include <chrono>
#include <condition_variable>
#include <thread>

#include "ballast/comm/quiet_thread.h"

namespace ballast::comm {
namespace {

constexpr std::chrono::milliseconds kPause{1};
// A thread that is sound asleep must be woken, which costs the worker a switch of threads. So it
// stays awake from one call of a step to the next.
constexpr int kIdlePauses = 100;

}  // namespace

struct MessageMover::State {
  explicit State(std::mutex& mpi) : mpi(mpi) {}

  std::mutex& mpi;
  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  int under_way = 0, waiting = 0;
  bool asleep = false, stopped = false;
  // A message that nobody sends: to ask for it moves all others. (MPI_Iprobe need not.)
  MPI_Request never = MPI_REQUEST_NULL;
  std::thread thread;

  // REQUIRES: MPI is held.
  void move_messages() {
    if (never == MPI_REQUEST_NULL) MPI_Irecv(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF, &never);
    int found = 0;
    MPI_Test(&never, &found, MPI_STATUS_IGNORE);
  }

  void work() {
    std::unique_lock lock(mutex);
    for (int idle = 0; !stopped;) {
      idle = under_way == 0 ? idle + 1 : 0;
      if (idle > kIdlePauses) {
        asleep = true;
        changed.wait(lock, [&] { return stopped || under_way > 0; });
        asleep = false;
        idle = 0;
      }
      if (changed.wait_for(lock, kPause, [&] { return stopped; })) return;
      if (under_way == 0 || waiting > 0) continue;
      lock.unlock();
      if (const std::unique_lock use(mpi, std::try_to_lock); use.owns_lock()) move_messages();
      lock.lock();
    }
  }
};

MessageMover::MessageMover(std::mutex& mpi) : state_(new State(mpi)) {
  state_->thread = quiet_thread([state = state_.get()] { state->work(); });
}

MessageMover::~MessageMover() { stop(); }

void MessageMover::began() {
  const std::lock_guard lock(state_->mutex);
  ++state_->under_way;
  if (state_->asleep) state_->changed.notify_one();
}

void MessageMover::ended() {
  const std::lock_guard lock(state_->mutex);
  --state_->under_way;
}

void MessageMover::waits(bool begins) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting += begins ? 1 : -1;
}

void MessageMover::stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
  }
  state_->changed.notify_one();
  if (state_->thread.joinable()) state_->thread.join();
}

void MessageMover::forget() {
  if (state_->never == MPI_REQUEST_NULL) return;
  MPI_Cancel(&state_->never);
  MPI_Request_free(&state_->never);
}

}  // namespace ballast::comm
