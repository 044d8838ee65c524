// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/stop_signal.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>

namespace ballast {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1};

// A signal handler can reach nothing but globals.
volatile std::sig_atomic_t g_requested = 0;
volatile std::sig_atomic_t g_on_terminal = 0;  // where the message starts below the "^C"
std::array<struct sigaction, kSignals.size()> g_former;
alignas(64) std::array<std::byte, 64 * 1024> g_stack;

void on_signal(int number) {
  if (g_requested != 0) ::_exit(128 + number);
  g_requested = 1;
  const int saved = errno;  // of the code that was interrupted
  if (g_on_terminal != 0) (void)!::write(STDERR_FILENO, "\n", 1);
  (void)!::write(STDERR_FILENO, kStopMessage.data(), kStopMessage.size());
  errno = saved;
}

}  // namespace

StopSignal::StopSignal() {
  g_requested = 0;
  g_on_terminal = ::isatty(STDERR_FILENO);
  // On a stack of its own: oneDNN's generated code keeps data below the stack pointer, which a
  // handler on the same stack would overwrite (seen as a corrupted heap). The kernel gives the
  // signal to the main thread, whose stack this is.
  const stack_t stack = {g_stack.data(), 0, g_stack.size()};
  ::sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &g_former[i]);
}

StopSignal::~StopSignal() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &g_former[i], nullptr);
}

bool StopSignal::requested() const { return g_requested != 0; }

}  // namespace ballast
