// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>

#include "ballast/system/console.h"

namespace ballast {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1};

// A signal handler can reach nothing but globals.
using Clock = std::chrono::steady_clock;
std::atomic<Clock::rep> g_asked_at = 0;        // 0: not yet
std::atomic<int> g_wake = -1;                  // can be read once it is asked
volatile std::sig_atomic_t g_on_terminal = 0;  // where the message starts below the "^C"
std::array<struct sigaction, kSignals.size()> g_former;
alignas(64) std::array<std::byte, 64 * 1024> g_stack;
static_assert(std::atomic<Clock::rep>::is_always_lock_free);

void on_signal(int number) {
  const int saved = errno;  // of the code that was interrupted
  const Clock::rep now = Clock::now().time_since_epoch().count();
  Clock::rep first = 0;
  if (g_asked_at.compare_exchange_strong(first, now)) {
    constexpr uint64_t kOne = 1;
    (void)!::write(g_wake, &kOne, sizeof(kOne));
    if (g_on_terminal != 0) (void)!::write(STDERR_FILENO, "\n", 1);
    write_in_signal({kStopMessage});
  } else if (Clock::duration(now - first) > kOneRequest) {
    ::_exit(128 + number);
  }
  errno = saved;
}

}  // namespace

StopSignal::StopSignal() {
  g_asked_at = 0;
  g_wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  g_on_terminal = ::isatty(STDERR_FILENO);
  // On a stack of its own: oneDNN's generated code keeps data below the stack pointer, which a
  // handler on the same stack would overwrite (seen as a corrupted heap). The kernel gives the
  // signal to the main thread, whose stack this is, unless that thread holds it off meanwhile:
  // hence no signal waits for the handler of another (SA_NODEFER).
  const stack_t stack = {g_stack.data(), 0, g_stack.size()};
  ::sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK | SA_RESTART | SA_NODEFER;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction former = {};
    ::sigaction(kSignals[i], &action, &former);
    if (former.sa_handler != on_signal) g_former[i] = former;  // else of an object that was asked
  }
}

StopSignal::~StopSignal() {
  ::close(g_wake.exchange(-1));
  if (requested()) return;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &g_former[i], nullptr);
}

bool StopSignal::requested() const { return g_asked_at != 0; }

bool wait_for_input(int descriptor) {
  std::array<pollfd, 2> events{{{descriptor, POLLIN, 0}, {g_wake, POLLIN, 0}}};  // -1: passed over
  while (::poll(events.data(), events.size(), -1) < 0 && errno == EINTR) {
  }
  return events[1].revents == 0;
}

}  // namespace ballast
