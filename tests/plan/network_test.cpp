// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/plan/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/system/error.h"

namespace ballast::plan {
namespace {

// 100 bytes a second between machines of 4, 1000 within one; a second and a tenth a message.
const Wires kWires{.network = {.name = "slow",
                               .machine_workers = 4,
                               .bandwidth = 100,
                               .latency = 1,
                               .machine_latency = 0.1},
                   .link_bandwidth = 1000,
                   .pair_bandwidth = 400};

TEST(Wires, ALoneWorkerSendsNothing) {
  const GroupOnNetwork alone{.size = 1, .in_machine = 1};
  EXPECT_EQ(kWires.all_reduce(1e9, alone), 0);
  EXPECT_EQ(kWires.all_to_all(1e9, alone), 0);
  EXPECT_EQ(kWires.all_gather(1e9, alone), 0);
}

TEST(Wires, ARingWithinAMachineUsesItsLinks) {
  const GroupOnNetwork group{.size = 4, .in_machine = 4};
  EXPECT_DOUBLE_EQ(kWires.all_reduce(2000, group), 2 * 0.75 * 2000 / 1000 + 2 * 2 * 0.1);
}

TEST(Wires, TwoNeighboursHaveOnlyTheLinksBetweenThem) {
  const GroupOnNetwork pair{.size = 2, .in_machine = 2};
  EXPECT_DOUBLE_EQ(kWires.all_reduce(2000, pair), 2000.0 / 400 + 2 * 0.1);
  EXPECT_DOUBLE_EQ(kWires.all_gather(2000, pair), 2000.0 / 400 + 0.1);
}

TEST(Wires, ARingCrossesTheAdapterOnceHoweverManyOfAMachineAreInIt) {
  const GroupOnNetwork one{.size = 8, .in_machine = 1}, four{.size = 8, .in_machine = 4};
  EXPECT_DOUBLE_EQ(kWires.all_reduce(400, four), 2 * 7.0 / 8 * 400 / 100 + 2 * 3 * 1);
  EXPECT_DOUBLE_EQ(kWires.all_reduce(400, one), kWires.all_reduce(400, four));
}

TEST(Wires, RingsSideBySideShareTheAdapter) {
  const GroupOnNetwork one{.size = 8, .in_machine = 4, .side_by_side = 1};
  const GroupOnNetwork two{.size = 8, .in_machine = 4, .side_by_side = 2};
  const double latency = 2 * 3 * 1;
  EXPECT_DOUBLE_EQ(kWires.all_reduce(400, two) - latency,
                   2 * (kWires.all_reduce(400, one) - latency));
}

TEST(Wires, AllToAllSharesTheAdapterAmongTheWorkersOfAMachine) {
  const GroupOnNetwork group{.size = 8, .in_machine = 4};
  // 3/8 to neighbours, and of each of 4 workers 4/8 to other machines.
  EXPECT_DOUBLE_EQ(kWires.all_to_all(800, group), 300.0 / 1000 + 3 * 0.1 + 4 * 400.0 / 100 + 4 * 1);
}

TEST(Wires, InTwoHopsFewerMessagesLeaveAMachineAndAsManyBytes) {
  const GroupOnNetwork group{.size = 8, .in_machine = 4};
  // 3/4 to neighbours; of each of 4 workers a half to the other machine, in one message.
  EXPECT_DOUBLE_EQ(kWires.all_to_all_in_hops(800, group),
                   600.0 / 1000 + 3 * 0.1 + 4 * 400.0 / 100 + 1);
  for (const GroupOnNetwork& other : {GroupOnNetwork{4, 4}, GroupOnNetwork{8, 1}})
    EXPECT_EQ(kWires.all_to_all_in_hops(800, other), kWires.all_to_all(800, other));
}

TEST(Wires, HalfOfASumIsScattered) {
  const GroupOnNetwork group{.size = 8, .in_machine = 4};
  EXPECT_DOUBLE_EQ(kWires.reduce_scatter(400, group), kWires.all_reduce(400, group) / 2);
}

// OpenMPI's calls (docs/plan.md).
Wires by_mpi() {
  Wires wires = kWires;
  wires.transport = Transport::kMpi;
  return wires;
}

TEST(WiresOfMpi, HalvesGoToPartnerAfterPartnerTheOwnMachinesFirst) {
  const GroupOnNetwork apart{.size = 8, .in_machine = 1}, four{.size = 8, .in_machine = 4};
  EXPECT_DOUBLE_EQ(by_mpi().all_reduce(800, apart), 2 * (7.0 / 8 * 800 / 100 + 3 * 1));
  // 400 and 200 bytes to neighbours; four workers send their last 100 through the adapter at once.
  EXPECT_DOUBLE_EQ(by_mpi().all_reduce(800, four),
                   2 * ((400.0 + 200) / 400 + 2 * 0.1 + 4 * 100.0 / 100 + 1));
}

TEST(WiresOfMpi, BeyondAPowerOfTwoAllGoesToANeighbourFirst) {
  const GroupOnNetwork three{.size = 3, .in_machine = 1};
  EXPECT_DOUBLE_EQ(by_mpi().all_reduce(800, three), 2 * (400.0 / 100 + 1) + 2 * (800.0 / 100 + 1));
}

TEST(WiresOfMpi, MessagesBeginTogetherAndLongOnesWaitForAnAnswer) {
  const GroupOnNetwork group{.size = 8, .in_machine = 4};
  EXPECT_DOUBLE_EQ(by_mpi().all_to_all(800, group), 300.0 / 1000 + 3 * 0.1 + 4 * 400.0 / 100 + 1);
  const double large = 8e6;  // a million bytes to each
  EXPECT_DOUBLE_EQ(by_mpi().all_to_all(large, group), 3e6 / 1000 + 3 * 0.1 + 4 * 4e6 / 100 + 3);
}

TEST(WiresOfMpi, EachWorkerOfAMachineGathersForItself) {
  const GroupOnNetwork group{.size = 8, .in_machine = 4};
  EXPECT_DOUBLE_EQ(by_mpi().all_gather(100, group), 4 * 4 * 100.0 / 100 + 1);
}

TEST(WiresOfMpi, AScatteredSumMeetsInOneWorker) {
  const GroupOnNetwork group{.size = 4, .in_machine = 2};
  EXPECT_DOUBLE_EQ(by_mpi().reduce_scatter(800, group),
                   800.0 / 400 + 0.1 + (800.0 / 100 + 1) + 400.0 / 100 + 1);
  EXPECT_EQ(by_mpi().reduce_scatter(800, {.size = 1, .in_machine = 1}), 0);
}

TEST(Wires, MoreBandwidthAndLessLatencyAreNeverSlower) {
  for (const GroupOnNetwork& group :
       {GroupOnNetwork{2, 2}, GroupOnNetwork{8, 4}, GroupOnNetwork{16, 1, 4}}) {
    for (const auto& change : {+[](Wires& wires) { wires.network.bandwidth *= 2; },
                               +[](Wires& wires) { wires.network.latency /= 2; },
                               +[](Wires& wires) { wires.link_bandwidth *= 2; },
                               +[](Wires& wires) { wires.pair_bandwidth *= 2; },
                               +[](Wires& wires) { wires.network.machine_latency /= 2; }}) {
      for (const Wires& wires : {kWires, by_mpi()}) {
        Wires better = wires;
        change(better);
        EXPECT_LE(better.all_reduce(1e4, group), wires.all_reduce(1e4, group));
        EXPECT_LE(better.reduce_scatter(1e4, group), wires.reduce_scatter(1e4, group));
        EXPECT_LE(better.all_to_all(1e4, group), wires.all_to_all(1e4, group));
        EXPECT_LE(better.all_gather(1e4, group), wires.all_gather(1e4, group));
      }
    }
  }
}

TEST(Network, AWrongNameIsToldTheRightOnes) {
  try {
    find_network("carrier-pigeon");
    FAIL() << "it was found";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("carrier-pigeon"));
    EXPECT_THAT(error.what(), testing::HasSubstr("infiniband, nvlink, ethernet"));
  }
}

}  // namespace
}  // namespace ballast::plan
