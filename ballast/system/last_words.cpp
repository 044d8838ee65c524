// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/last_words.h"

#include <csignal>

#include "ballast/system/console.h"

namespace ballast {
namespace {

void on_crash(int number) {
  write_in_signal(
      {"ballast: crashed (",
       number == SIGSEGV   ? "SIGSEGV"
       : number == SIGILL  ? "SIGILL"
       : number == SIGABRT ? "SIGABRT"
                           : "SIGFPE",
       "): memory may have run out within a library, or it is a fault of ours. What was "
       "saved is whole; a run goes on by --resume auto\n"});
  std::signal(number, SIG_DFL);  // the same again, as it would have been
}

}  // namespace

void explain_crashes() {
  for (const int number : {SIGSEGV, SIGILL, SIGFPE, SIGABRT}) {
    struct sigaction before = {};
    if (::sigaction(number, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_handler = on_crash;
    action.sa_flags = SA_ONSTACK;
    ::sigaction(number, &action, nullptr);
  }
}

}  // namespace ballast
