// SPDX-License-Identifier: Apache-2.0
// Workers of one machine that stand for those of several.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "ballast/comm/collectives.h"
#include "ballast/comm/machine_hops.h"
#include "tests/comm/workers.h"

namespace ballast::test {
namespace {

using at::Tensor;
using comm::MachineHops;

// Ways to divide these workers into machines: neighbours together, in turn, and in no order.
std::vector<std::vector<int>> divisions() {
  switch (everyone().size()) {
    case 4:
      return {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 0}};
    case 8:
      return {{0, 0, 0, 0, 1, 1, 1, 1},
              {0, 0, 1, 1, 2, 2, 3, 3},
              {0, 1, 2, 3, 0, 1, 2, 3},
              {0, 1, 1, 0, 1, 0, 0, 1}};
    default:
      return {};
  }
}

int64_t rows_between(int64_t from, int64_t to) { return (from * 5 + to * 3) % 4; }  // some none

comm::RowsOfWorker sent_by(int64_t worker) {
  comm::RowsOfWorker rows;
  for (int64_t to = 0; to < everyone().size(); ++to) rows.push_back(rows_between(worker, to));
  return rows;
}
comm::RowsOfWorker got_by(int64_t worker) {
  comm::RowsOfWorker rows;
  for (int64_t from = 0; from < everyone().size(); ++from)
    rows.push_back(rows_between(from, worker));
  return rows;
}

Tensor random_rows(const comm::RowsOfWorker& rows, int seed) {
  at::manual_seed(100 * seed + everyone().rank());
  int64_t count = 0;
  for (const int64_t of_worker : rows) count += of_worker;
  return at::randn({count, 3}).to(device());
}

TEST(WorkersHops, UnevenRowsArriveAndReturnAsTheyDoStraight) {
  const int rank = everyone().rank();
  const comm::RowsOfWorker send = sent_by(rank), receive = got_by(rank);
  for (const std::vector<int>& machines : divisions()) {
    const MachineHops hops(everyone(), machines);
    const Tensor straight = random_rows(send, 1).requires_grad_();
    const Tensor hopped = straight.detach().clone().requires_grad_();
    const Tensor expected = comm::all_to_all(everyone(), straight, send, receive, {"test", 1});
    const comm::RowsOfMachine rows = hops.gather(send, receive, {"test", 1});
    const Tensor got = hops.all_to_all(hopped, rows, {"test", 1});
    EXPECT_TRUE(got.equal(expected));
    const Tensor dy = random_rows(receive, 2);
    torch::autograd::backward({expected}, {dy});
    torch::autograd::backward({got}, {dy});
    EXPECT_TRUE(hopped.grad().equal(straight.grad()));
    EXPECT_GT(hops.take_all_to_all_seconds(1), 0);
  }
}

TEST(WorkersHops, AMachineKnowsWhatItsWorkersSendAndGet) {
  for (const std::vector<int>& machines : divisions()) {
    const MachineHops hops(everyone(), machines);
    const int rank = everyone().rank();
    const comm::RowsOfMachine rows = hops.gather(sent_by(rank), got_by(rank), {"test"});
    ASSERT_EQ(rows.send.size(), hops.neighbours().size());
    for (size_t i = 0; i < rows.send.size(); ++i) {
      EXPECT_EQ(machines[hops.neighbours()[i]], machines[rank]);
      EXPECT_EQ(rows.send[i], sent_by(hops.neighbours()[i]));
      EXPECT_EQ(rows.receive[i], got_by(hops.neighbours()[i]));
    }
  }
}

TEST(WorkersHops, WorkersOfOneMachineOrOneOnEachGoStraight) {
  const std::vector<int> machines = comm::machines_of(everyone());
  EXPECT_EQ(std::ranges::count(machines, machines[everyone().rank()]), place_on_machine().workers);
  EXPECT_EQ(comm::hops_between_machines(everyone()), nullptr);
}

TEST(WorkersHops, MachinesMustBeSeveralAndAlike) {
  EXPECT_TRUE(MachineHops::suit({0, 0, 1, 1}));
  EXPECT_TRUE(MachineHops::suit({0, 1, 2, 2, 1, 0}));
  EXPECT_FALSE(MachineHops::suit({0, 0, 0, 0}));
  EXPECT_FALSE(MachineHops::suit({0, 1, 2, 3}));
  EXPECT_FALSE(MachineHops::suit({0, 0, 1, 1, 1}));
  EXPECT_FALSE(MachineHops::suit({}));
}

}  // namespace
}  // namespace ballast::test
