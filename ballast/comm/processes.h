// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace ballast::comm {

// A process of this machine, as /proc tells of it.
struct Process {
  pid_t id = 0, parent = 0;
  char state = '?';  // 'T': stopped by a signal, 't': by a debugger, 'Z': has ended
  std::string name;  // of its program, 15 characters at most

  bool stopped() const { return state == 'T' || state == 't'; }
};

// Nothing: there is no such process.
std::optional<Process> process(pid_t id);
std::vector<Process> children_of(pid_t parent);
// Children, their children and so on.
std::vector<Process> descendants_of(pid_t ancestor);

// Whether the process starts workers: mpirun, its daemon on another machine, or srun's.
bool starts_workers(const Process& process);
// Whether it is OpenMPI's among these.
bool is_mpirun(const Process& process);

// The words it was started with; empty: it has ended, or they may not be read.
std::vector<std::string> command_line_of(pid_t id);

// The number that mpirun or srun gave the process; nothing: none, or it may not be read.
std::optional<int> worker_number(pid_t id);
// That of this process; 0 where nobody gave one.
int own_worker_number();

// Lines that name the workers of `starter` that are stopped on this machine, and the starter if it
// is; each after a line break. Empty: nobody is, or it starts no workers.
std::string stopped_workers(pid_t starter);

}  // namespace ballast::comm
