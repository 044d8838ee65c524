// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::comm {

// How a worker ended that should not have.
struct WorkerFailure {
  int worker = 0;     // -1: a machine, or nobody knows which
  int code = 0;       // its exit code, or what it gave World::abort()
  int signal = 0;     // that ended it; 0: none did
  bool told = false;  // it ended by itself, and has said why (World::abort())
  std::string text;   // "worker 1 was ended by signal 9 (Killed) on node7"
};

// Reads mpirun's stderr, where workers' lines and its own messages are mixed: finds out which
// worker failed first, and tells which lines are worth showing.
class MpirunOutput {
 public:
  // The line as it should be shown, with "worker 3: " in place of mpirun's tag. Nothing for
  // kStopMessage, and for mpirun's own lines that failure() tells better. Lines come without their
  // end.
  std::optional<std::string> take(std::string_view line);

  // What is certain; else what points to a machine that is lost.
  const std::optional<WorkerFailure>& failure() const;
  // mpirun has lost its daemon on a machine. It may wait for it without end.
  bool has_lost_machine() const { return has_lost_machine_; }
  // Which these were, where that is known from elsewhere, and whether all workers had come before.
  void name_lost_machines(const std::vector<std::string>& names, bool workers_had_come = true);

 private:
  void look_for_failure(const std::string& line);
  void remember(WorkerFailure failure);

  void look_for_lost_machine(const std::string& line);

  std::optional<WorkerFailure> failure_, lost_peer_, lost_daemon_;
  std::optional<int> worker_;  // of a message of several lines
  bool in_long_message_ = false, between_rules_ = false, has_lost_machine_ = false;
};

}  // namespace ballast::comm
