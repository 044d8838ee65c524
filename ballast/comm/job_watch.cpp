// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/job_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "ballast/comm/launch.h"
#include "ballast/comm/processes.h"
#include "ballast/comm/watchdog.h"
#include "ballast/system/log.h"
#include "ballast/system/stop_signal.h"

namespace ballast::comm {
namespace {

constexpr double kLongestTurn = 1;  // seconds; what is longer this process was stopped itself
// Workers notice first who is missing, and say more: they get this much longer.
constexpr double kForWorkers = 3;
constexpr double kToEnd = 5, kToObey = 5;

}  // namespace

JobWatch::JobWatch(pid_t mpirun, int workers, double deadline_seconds, Notebook& notebook,
                   const Custody& custody)
    : mpirun_(mpirun),
      workers_(workers),
      deadline_(deadline_seconds),
      notebook_(notebook),
      custody_(custody),
      last_look_(std::chrono::steady_clock::now()) {}

void JobWatch::stop() {
  ++stops_;
  if (stops_ == 1) {
    log_warning_line(kStopMessage.substr(0, kStopMessage.size() - 1));
    ::kill(mpirun_, SIGUSR1);
    custody_.signal_all(SIGCONT);
  } else if (stops_ == 2) {
    end();
  } else {
    ::kill(mpirun_, SIGKILL);
  }
}

void JobWatch::end() {
  ended_ = true;
  ::kill(mpirun_, SIGTERM);
  custody_.signal_all(SIGCONT);
}

void JobWatch::give_up(const char* what, double waited) {
  std::string stopped = stopped_workers(mpirun_);
  if (stopped.empty() && !notebook_.all_arrived(workers_))
    stopped = fmt::format("\n  {} of {} workers have come", notebook_.arrived(), workers_);
  failure_ =
      WorkerFailure{-1, kWorkersLost, 0, false,
                    fmt::format("gave up after waiting {:.1f} seconds (the deadline) for {}{}",
                                waited, what, stopped)};
  end();
}

void JobWatch::look() {
  const auto now = std::chrono::steady_clock::now();
  const double turn =
      std::min(std::chrono::duration<double>(now - last_look_).count(), kLongestTurn);
  last_look_ = now;
  notebook_.read();
  ending_.count(ended_, turn);
  if (ended_) {
    if (ending_.seconds > kToObey) ::kill(mpirun_, SIGKILL);
    return;
  }
  starting_.count(notebook_.works() && !notebook_.all_arrived(workers_), turn);
  closed_.count(notebook_.is_closed(), turn);
  told_.count(notebook_.is_ending() || machine_lost_, turn);
  if (told_.seconds > kToEnd) {
    // One that waits for a machine it cannot reach obeys badly: it crashes at the second signal.
    if (notebook_.reach() == Reach::kNetwork) ::kill(mpirun_, SIGKILL);
    return end();
  }
  if (is_too_late(starting_.seconds - kForWorkers, deadline_, mpirun_))
    return give_up("the start of the workers", starting_.seconds);
  if (is_too_late(closed_.seconds - kForWorkers, deadline_, mpirun_))
    return give_up("the end of the workers", closed_.seconds);
}

}  // namespace ballast::comm
