// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>

namespace ballast::test {

// Forks; the child runs body() and exits with what it returns (99 if it throws). REQUIRES: this
// process has no other threads. Returns the child's process id.
template <typename Body>
pid_t start_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child > 0) return child;
  int code = 99;
  try {
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  }
  ::_exit(code);
}

// Waits for a child; its exit code, or minus the signal that ended it.
inline int wait_for_child(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, 0) != child) throw std::runtime_error("waitpid failed");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

template <typename Body>
int run_in_child(Body body) {
  return wait_for_child(start_child(body));
}

// From now on this process cannot make a file larger than `bytes`: writes fail as on a full disk
// (with EFBIG), for any user. For children only, since it cannot be undone by everyone.
inline void limit_file_size(rlim_t bytes) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, bytes};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("setrlimit failed");
}

}  // namespace ballast::test
