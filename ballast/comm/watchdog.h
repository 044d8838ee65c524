// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>

namespace ballast::comm {

// Whether a start or an end has been waited for too long. The deadline counts as it is where a
// worker of `starter` is stopped; otherwise it is at least half a minute, since programs take their
// time to load.
bool is_too_late(double waited_seconds, double deadline_seconds, pid_t starter);

// While it lives, the process waits in calls of MPI that have no deadline: its start, its end, a
// split. When that takes longer than the deadline (is_too_late), a thread says so on stderr, with
// who is stopped on this machine, and ends this process with kWorkersLost; mpirun then ends the
// others. Time in which this process itself is stopped does not count.
class Watchdog {
 public:
  // `what` is a literal: "the start of the workers".
  Watchdog(const char* what, double deadline_seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Ends this process with `code` if it still runs ten seconds later: where MPI_Abort hangs.
void end_process_soon(int code) noexcept;

}  // namespace ballast::comm
