// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/stop_signal.h"

#include <unistd.h>

#include <array>
#include <csignal>

namespace ballast {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};

// A signal handler can reach nothing but globals.
volatile std::sig_atomic_t g_requested = 0;
std::array<struct sigaction, kSignals.size()> g_former;

void on_signal(int number) {
  if (g_requested != 0) ::_exit(128 + number);
  g_requested = 1;
  constexpr char kMessage[] = "\nstopping as soon as it is safe; once more ends at once\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
}

}  // namespace

StopSignal::StopSignal() {
  g_requested = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &g_former[i]);
}

StopSignal::~StopSignal() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &g_former[i], nullptr);
}

bool StopSignal::requested() const { return g_requested != 0; }

}  // namespace ballast
