// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "tests/support/child_process.h"

namespace ballast {
namespace {

class StopSignalOf : public testing::TestWithParam<int> {};

TEST_P(StopSignalOf, AsksToStopAndSaysSo) {
  const StopSignal stop;
  EXPECT_FALSE(stop.requested());
  testing::internal::CaptureStderr();
  std::raise(GetParam());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), kStopMessage);
  EXPECT_TRUE(stop.requested());
}

TEST_P(StopSignalOf, TheSecondOneEndsAtOnce) {
  // Whichever the first was: a starter asks with one signal and insists with another.
  for (const int first : {SIGINT, SIGTERM, SIGUSR1}) {
    const int code = test::run_in_child([&] {
      const StopSignal stop;
      std::raise(first);
      std::raise(GetParam());
      return 0;
    });
    EXPECT_EQ(code, 128 + GetParam());
  }
}

TEST_P(StopSignalOf, FormerHandlersComeBack) {
  const int code = test::run_in_child([&] {
    { const StopSignal stop; }
    std::raise(GetParam());
    return 0;
  });
  EXPECT_EQ(code, -GetParam());
}

TEST_P(StopSignalOf, AnEarlierRequestIsForgotten) {
  {
    const StopSignal stop;
    std::raise(GetParam());
  }
  EXPECT_FALSE(StopSignal().requested());
}

INSTANTIATE_TEST_SUITE_P(
    Each, StopSignalOf, testing::Values(SIGINT, SIGTERM, SIGUSR1), [](const auto& info) {
      return std::string(info.param == SIGINT ? "Int" : info.param == SIGTERM ? "Term" : "Usr1");
    });

}  // namespace
}  // namespace ballast
