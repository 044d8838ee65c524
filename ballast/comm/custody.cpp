// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/custody.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "ballast/comm/processes.h"
#include "ballast/system/log.h"

namespace ballast::comm {

Custody::Custody() {
  for (const Process& child : children_of(::getpid())) children_.insert(child.id);
  ::prctl(PR_GET_CHILD_SUBREAPER, &before_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Custody::~Custody() { ::prctl(PR_SET_CHILD_SUBREAPER, before_); }

std::set<pid_t> Custody::started() const {
  std::set<pid_t> found;
  for (const Process& child : children_of(::getpid())) {
    if (children_.contains(child.id)) continue;
    found.insert(child.id);
    for (const Process& one : descendants_of(child.id)) found.insert(one.id);
  }
  return found;
}

void Custody::signal_all(int signal) const {
  for (const pid_t id : started()) ::kill(id, signal);
}

void Custody::end_all() const {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::minutes(1);
  std::set<pid_t> left = started();
  for (; !left.empty() && Clock::now() < end; left = started()) {
    for (const pid_t id : left) {
      ::kill(id, SIGKILL);
      ::waitpid(id, nullptr, WNOHANG);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (!left.empty())
    log_warning("process(es) {} of the workers cannot be ended", fmt::join(left, ", "));
}

}  // namespace ballast::comm
