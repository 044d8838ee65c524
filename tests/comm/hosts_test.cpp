// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/system/error.h"

namespace ballast::comm {
namespace {

std::string fault_of(const std::vector<std::string>& hosts, int workers) {
  try {
    return "none: " + mpirun_hosts(hosts, workers);
  } catch (const UserError& error) {
    return error.what();
  }
}

TEST(Hosts, ShareTheWorkersEvenly) {
  EXPECT_EQ(mpirun_hosts({}, 3), "localhost:3");
  EXPECT_EQ(mpirun_hosts({"node1", "node2"}, 4), "node1:2,node2:2");
  EXPECT_EQ(mpirun_hosts({"node1", "10.0.0.2", "node3.lan"}, 7), "node1:3,10.0.0.2:2,node3.lan:2");
}

TEST(Hosts, HaveAsManyWorkersAsTheyAreTold) {
  EXPECT_EQ(mpirun_hosts({"node1:1", "node2:5"}, 6), "node1:1,node2:5");
  EXPECT_THAT(fault_of({"node1:1", "node2:5"}, 4), ::testing::HasSubstr("room for 6 workers"));
  EXPECT_THAT(fault_of({"a:2147483647", "b:2147483647", "c:6"}, 4),
              ::testing::HasSubstr("room for 4294967300 workers"));
}

TEST(Hosts, ThatDoNotFitAreRefused) {
  EXPECT_THAT(fault_of({"node1", "node2", "node3"}, 2), ::testing::HasSubstr("3 machines for 2"));
  EXPECT_THAT(fault_of({"node1:1", "node2"}, 2), ::testing::HasSubstr("tell all or none"));
  EXPECT_THAT(fault_of({"node1", "node1"}, 2), ::testing::HasSubstr("names node1 twice"));
  for (const char* name : {"", "--mca", "a b", "node1:0", "node1:", "node1:2x", "user@node1", "/x",
                           "+e", "a;b", "node\n1"})
    EXPECT_THAT(fault_of({name}, 2), ::testing::StartsWith("--hosts: ")) << name;
}

}  // namespace
}  // namespace ballast::comm
