// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <set>

namespace ballast::comm {

// While this lives, orphans of this process's children become its own children. So nothing that was
// started since is lost sight of. One object at a time.
class Custody {
 public:
  Custody();
  ~Custody();
  Custody(const Custody&) = delete;
  Custody& operator=(const Custody&) = delete;

  // Sends a signal to all that was started since.
  void signal_all(int signal) const;
  // Kills all that was started since, stopped or not, and returns when nothing of it is left. What
  // the system cannot end within a minute (a disk that does not answer) is told on stderr.
  void end_all() const;

 private:
  std::set<pid_t> started() const;

  int before_ = 0;            // whether orphans came to this process before
  std::set<pid_t> children_;  // that were there before
};

}  // namespace ballast::comm
