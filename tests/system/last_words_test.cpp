// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/last_words.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

namespace ballast {
namespace {

// As where a library's destructor gets no memory: std::terminate calls abort.
TEST(LastWordsDeathTest, WhatIsAbortedSaysALineAndEndsAsItWould) {
  EXPECT_EXIT(
      {
        std::signal(SIGABRT, SIG_DFL);
        explain_crashes();
        std::abort();
      },
      testing::KilledBySignal(SIGABRT), "ballast: crashed \\(SIGABRT\\): memory may have run out");
}

}  // namespace
}  // namespace ballast
