// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/remote_daemons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <thread>

#include "ballast/comm/processes.h"
#include "tests/support/child_process.h"

namespace ballast::comm {
namespace {

// As ssh: a child with the name of a machine among its words.
pid_t start_daemon(const char* host) {
  const pid_t child = test::start_child([host] {
    ::execl("/bin/sh", "sh", "-c", "read nothing; exit 0", host, nullptr);
    return 127;
  });
  // While it becomes another program it has no words for a moment.
  for (auto words = command_line_of(child); words.empty() || words.back() != host;
       words = command_line_of(child))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return child;
}

TEST(RemoteDaemons, TheOneThatHasEndedIsTold) {
  std::array<int, 2> input{};
  ASSERT_EQ(::pipe(input.data()), 0);
  const int before = ::dup(STDIN_FILENO);
  ::dup2(input[0], STDIN_FILENO);  // so that they wait
  const pid_t first = start_daemon("node1"), second = start_daemon("node2");
  ::dup2(before, STDIN_FILENO);
  RemoteDaemons daemons(::getpid(), {"node1:2", "node2:2", "node3:2"});
  daemons.look();
  EXPECT_THAT(daemons.gone(), ::testing::IsEmpty()) << "node3 was never there";
  ::kill(second, SIGKILL);
  test::wait_for_child(second);
  EXPECT_THAT(daemons.gone(), ::testing::ElementsAre("node2"));
  ::kill(first, SIGKILL);
  test::wait_for_child(first);
  for (const int fd : {input[0], input[1], before}) ::close(fd);
}

}  // namespace
}  // namespace ballast::comm
