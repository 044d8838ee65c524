// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/undertaker.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <vector>

#include "ballast/comm/notebook.h"
#include "ballast/comm/processes.h"

namespace ballast::comm {
namespace {

constexpr int kToEndMilliseconds = 10000, kToObeyMilliseconds = 2000;

int open_process(pid_t id) { return static_cast<int>(::syscall(SYS_pidfd_open, id, 0)); }

void send(int process, int signal) {
  ::syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0);
}

bool ends_within(int process, int milliseconds) {
  pollfd ended{process, POLLIN, 0};
  return ::poll(&ended, 1, milliseconds) != 0;
}

// Its memory is that of a process with threads: only what a signal handler may do.
[[noreturn]] void bury(pid_t starter, std::vector<pid_t>& others) {
  ::setsid();
  ::closefrom(0);  // the lock of the run folder, and pipes that others read to their end
  const int mpirun = open_process(starter);
  for (pid_t& other : others) other = open_process(other);
  if (mpirun < 0 || ends_within(mpirun, kToEndMilliseconds)) ::_exit(0);
  send(mpirun, SIGCONT);
  // An mpirun that waits for another machine ends at the second.
  for (const int signal : {SIGTERM, SIGTERM, SIGKILL}) {
    send(mpirun, signal);
    if (ends_within(mpirun, kToObeyMilliseconds)) break;
  }
  for (const int other : others) send(other, SIGKILL);
  ::_exit(0);
}

}  // namespace

void leave_undertaker() noexcept {
  try {
    const auto starter = process(::getppid());
    if (has_launcher() || !starter || !is_mpirun(*starter)) return;
    std::vector<pid_t> others;
    for (const Process& one : children_of(starter->id)) {
      if (one.id != ::getpid()) others.push_back(one.id);
    }
    if (::fork() == 0) bury(starter->id, others);
  } catch (const std::exception&) {  // no memory: then without
  }
}

}  // namespace ballast::comm
