// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace ballast::comm {

// Machines on which mpirun has a daemon, told by the programs (ssh) that it has started for that.
// mpirun says that one has ended, and not which.
class RemoteDaemons {
 public:
  // `hosts` as people name them: "node1" or "node1:4".
  RemoteDaemons(pid_t mpirun, const std::vector<std::string>& hosts);

  // To be called while all is well: remembers who is there.
  void look() { known_ = present(); }
  // Who was there at the last look and is no more; empty: nobody.
  std::vector<std::string> gone() const;

 private:
  std::set<std::string> present() const;

  const pid_t mpirun_;
  std::set<std::string> hosts_, known_;
};

}  // namespace ballast::comm
