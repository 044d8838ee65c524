// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/watchdog.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "ballast/comm/launch.h"
#include "ballast/comm/notebook.h"
#include "ballast/comm/processes.h"
#include "ballast/comm/quiet_thread.h"
#include "ballast/comm/undertaker.h"
#include "ballast/comm/world.h"

namespace ballast::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr Seconds kLook{0.5};
constexpr double kShortestStart = 30;
constexpr Seconds kUntilEnd{10};

[[noreturn]] void give_up(const char* what, double waited) {
  const int worker = own_worker_number();
  std::fputs(fmt::format("ballast: worker {} of {} gave up after waiting {:.1f} seconds (the "
                         "deadline) in {}{}\n",
                         worker, num_started_workers(), waited, what, stopped_workers(::getppid()))
                 .c_str(),
             stderr);
  tell_launcher(Note::kEnds, worker, kWorkersLost);
  leave_undertaker();
  ::_exit(kWorkersLost);
}

}  // namespace

bool is_too_late(double waited_seconds, double deadline_seconds, pid_t starter) {
  if (waited_seconds <= deadline_seconds) return false;
  return waited_seconds > std::max(deadline_seconds, kShortestStart) ||
         !stopped_workers(starter).empty();
}

struct Watchdog::State {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_over = false;
  std::thread thread;

  void watch(const char* what, double deadline) {
    // The first worker speaks for all.
    const double for_others = std::min(0.5 * own_worker_number(), 4.0);
    double waited = 0;
    std::unique_lock lock(mutex);
    for (Clock::time_point last = Clock::now();;) {
      if (ended.wait_for(lock, kLook, [&] { return is_over; })) return;
      const Clock::time_point now = Clock::now();
      // A turn that took much longer was spent stopped: that is not the others' fault.
      waited += std::min(Seconds(now - last), 2 * kLook).count();
      last = now;
      if (is_too_late(waited - for_others, deadline, ::getppid())) give_up(what, waited);
    }
  }
};

Watchdog::Watchdog(const char* what, double deadline_seconds) : state_(new State) {
  state_->thread = quiet_thread(
      [state = state_.get(), what, deadline_seconds] { state->watch(what, deadline_seconds); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_over = true;
  }
  state_->ended.notify_one();
  state_->thread.join();
}

void end_process_soon(int code) noexcept {
  quiet_thread([code] {
    std::this_thread::sleep_for(kUntilEnd);
    ::_exit(code);
  }).detach();
}

}  // namespace ballast::comm
