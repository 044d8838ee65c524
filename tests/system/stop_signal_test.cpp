// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <thread>

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

TEST_P(StopSignalOf, ASecondRequestEndsAtOnce) {
  // Whichever the first was: a starter asks with one signal and insists with another.
  for (const int first : {SIGINT, SIGTERM, SIGUSR1}) {
    const int code = test::run_in_child([&] {
      const StopSignal stop;
      std::raise(first);
      std::this_thread::sleep_for(kOneRequest + std::chrono::milliseconds(1));
      std::raise(GetParam());
      return 0;
    });
    EXPECT_EQ(code, 128 + GetParam());
  }
}

// As `timeout` sends it: to the process, and to its group.
TEST_P(StopSignalOf, SeveralAtOnceAreOneRequest) {
  const StopSignal stop;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) std::raise(GetParam());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), kStopMessage);
  EXPECT_TRUE(stop.requested());
}

TEST_P(StopSignalOf, EndsAWaitForInput) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const int code = test::run_in_child([&] {
    const StopSignal stop;
    const std::thread waiting([&] { ::_exit(wait_for_input(pipe[0]) ? 1 : 42); });
    std::raise(GetParam());
    for (;;) ::pause();
    return 0;
  });
  EXPECT_EQ(code, 42);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(WaitForInput, ReturnsWhenThereIsSomethingToRead) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const StopSignal stop;
  ASSERT_EQ(::write(pipe[1], "x", 1), 1);
  EXPECT_TRUE(wait_for_input(pipe[0]));
  char byte = 0;
  ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
  ::close(pipe[1]);
  EXPECT_TRUE(wait_for_input(pipe[0])) << "at the end";
  ::close(pipe[0]);
}

TEST_P(StopSignalOf, FormerHandlersComeBack) {
  const int code = test::run_in_child([&] {
    { const StopSignal stop; }
    std::raise(GetParam());
    return 0;
  });
  EXPECT_EQ(code, -GetParam());
}

// The second signal of `timeout` may come when all is saved and the result is being printed.
TEST_P(StopSignalOf, TheRestOfARequestComesTooLate) {
  const int code = test::run_in_child([&] {
    {
      const StopSignal stop;
      std::raise(GetParam());
    }
    std::raise(GetParam());
    return 42;
  });
  EXPECT_EQ(code, 42);
}

TEST_P(StopSignalOf, FormerHandlersComeBackAfterAnotherThatWasAsked) {
  const int code = test::run_in_child([&] {
    {
      const StopSignal stop;
      std::raise(GetParam());
    }
    { const StopSignal stop; }
    std::raise(GetParam());
    return 42;
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
