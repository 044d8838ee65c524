// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/custody.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "ballast/comm/notebook.h"
#include "ballast/comm/processes.h"
#include "tests/support/child_process.h"

namespace ballast::comm {
namespace {

using test::start_child;

int stop_for_ever() {
  for (;;) ::raise(SIGSTOP);
}

// Returns once the process is in this state.
void wait_until_stopped(pid_t id) {
  while (!process(id) || !process(id)->stopped())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(Processes, AProcessIsToldByItsNumber) {
  const auto own = process(::getpid());
  ASSERT_TRUE(own);
  EXPECT_EQ(own->parent, ::getppid());
  EXPECT_FALSE(own->stopped());
  EXPECT_FALSE(process(-5));
  EXPECT_EQ(stopped_workers(::getpid()), "") << "this is no mpirun";
}

TEST(Custody, EndsStoppedChildrenAndWhatTheyLeaveBehind) {
  const pid_t before = test::start_child(stop_for_ever);
  wait_until_stopped(before);
  {
    const Custody custody;
    const pid_t stopped = test::start_child(stop_for_ever);
    // A child that ends at once, and leaves a child of its own that is stopped.
    EXPECT_EQ(test::run_in_child([] {
                test::start_child(stop_for_ever);
                return 0;
              }),
              0);
    wait_until_stopped(stopped);
    EXPECT_EQ(children_of(::getpid()).size(), 3U);
    custody.end_all();
    EXPECT_EQ(children_of(::getpid()).size(), 1U) << "what was there before stays";
  }
  EXPECT_EQ(::kill(before, SIGKILL), 0);
  EXPECT_EQ(test::wait_for_child(before), -SIGKILL);
}

TEST(Processes, ThatEndWhileTheyAreReadAreGone) {
  for (int i = 0; i < 100; ++i) {
    const pid_t child = start_child([] { return 0; });
    std::thread reaper([child] { test::wait_for_child(child); });
    while (process(child)) {
      command_line_of(child);
      worker_number(child);
    }
    reaper.join();
    EXPECT_TRUE(command_line_of(child).empty());
  }
}

TEST(Notebook, HoldsWhatWorkersTell) {
  Notebook notebook;
  notebook.read();
  EXPECT_FALSE(notebook.works());
  test::run_in_child([&] {
    notebook.try_out();
    const std::string variable = notebook.variables().front();
    const size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
    EXPECT_TRUE(has_launcher());
    tell_launcher(Note::kArrived, 0);
    tell_launcher(Note::kArrived, 3);
    tell_launcher(Note::kReturned, 3, 7);
    tell_launcher(Note::kEnds, 1, 75);
    return 0;
  });
  notebook.read();
  EXPECT_TRUE(notebook.works());
  EXPECT_EQ(notebook.arrived(), 2U);
  EXPECT_TRUE(notebook.is_ending());
  EXPECT_FALSE(notebook.is_closed());
  ASSERT_TRUE(notebook.failure());
  EXPECT_EQ(notebook.failure()->worker, 3);
  EXPECT_EQ(notebook.failure()->code, 7);
}

TEST(Notebook, WorkersOfOtherMachinesTellByLinesOfStderr) {
  Notebook notebook(Reach::kNetwork);
  EXPECT_TRUE(notebook.works());
  EXPECT_FALSE(notebook.all_arrived(4));
  testing::internal::CaptureStderr();
  test::run_in_child([&] {
    const std::string variable = notebook.variables().front();
    const size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
    EXPECT_FALSE(has_launcher()) << "it is on another machine, and cannot look after this process";
    EXPECT_TRUE(launcher_command_line().empty());
    tell_launcher(Note::kArrived, 2);
    tell_launcher(Note::kEnds, 1, 75);
    return 0;
  });
  std::istringstream lines(testing::internal::GetCapturedStderr());
  std::string arrived, ends;
  ASSERT_TRUE(std::getline(lines, arrived) && std::getline(lines, ends));
  EXPECT_TRUE(notebook.take_line("[1,2]<stderr>:" + arrived)) << "with mpirun's tag";
  EXPECT_TRUE(notebook.all_arrived(4)) << "the first that comes has found all others";
  EXPECT_FALSE(notebook.is_ending());
  EXPECT_TRUE(notebook.take_line(ends));
  EXPECT_TRUE(notebook.is_ending());
  EXPECT_EQ(notebook.failure()->worker, 1);
  EXPECT_FALSE(notebook.take_line("a 1 0")) << "what anybody may print";
  Notebook local;
  EXPECT_FALSE(local.take_line(ends));
}

}  // namespace
}  // namespace ballast::comm
