// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>

#include "ballast/comm/custody.h"
#include "ballast/comm/mpirun_output.h"
#include "ballast/comm/notebook.h"

namespace ballast::comm {

// Watches over the workers of one mpirun for the process that started it, and brings them to their
// end where they do not come to it themselves. Nothing here waits.
class JobWatch {
 public:
  JobWatch(pid_t mpirun, int workers, double deadline_seconds, Notebook& notebook,
           const Custody& custody);

  // The launcher was asked to stop. The first call asks the workers to, the second ends them, the
  // third kills them. A suspended worker is woken, since it could not listen.
  void stop();
  // To be called every now and then. Ends mpirun where workers have not arrived by the deadline,
  // and where it does not end after its workers have. Kills it where it does not obey.
  void look();
  // mpirun has said that a machine is lost: it counts as if a worker had ended the job.
  void lose_machine() { machine_lost_ = true; }

  bool all_have_come() const { return notebook_.all_arrived(workers_); }
  int stops() const { return stops_; }
  bool has_ended_it() const { return ended_; }
  // Why the watch has ended the job; nothing: it has not, or a worker has said why.
  const std::optional<WorkerFailure>& failure() const { return failure_; }

 private:
  // Counts time while something lasts.
  struct Since {
    double seconds = 0;
    void count(bool lasts, double turn) { seconds = lasts ? seconds + turn : 0; }
  };
  void give_up(const char* what, double waited);
  void end();

  const pid_t mpirun_;
  const int workers_;
  const double deadline_;
  Notebook& notebook_;
  const Custody& custody_;
  std::chrono::steady_clock::time_point last_look_;
  Since starting_, told_, closed_, ending_;
  int stops_ = 0;
  bool ended_ = false, machine_lost_ = false;
  std::optional<WorkerFailure> failure_;
};

}  // namespace ballast::comm
