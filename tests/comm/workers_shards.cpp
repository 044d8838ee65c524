// SPDX-License-Identifier: Apache-2.0
// Run by several workers: see workers_test.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "ballast/comm/collectives.h"
#include "ballast/comm/worker_grid.h"
#include "tests/comm/workers.h"
#include "tests/support/error_of.h"

namespace ballast::test {
namespace {

using at::Tensor;

std::vector<int64_t> divisors_of_workers() {
  std::vector<int64_t> divisors;
  for (int64_t n = 1; n <= everyone().size(); ++n)
    if (everyone().size() % n == 0) divisors.push_back(n);
  return divisors;
}

Tensor random_of(int seed, at::IntArrayRef shape) {
  at::manual_seed(seed);
  return at::randn(shape, at::kDouble).to(device());
}

// What the whole group computes, which each worker can compute by itself too.
Tensor loss_of(const Tensor& y) { return (y.sin() * (y + 0.3)).sum(); }

TEST(WorkerGrid, NumbersWorkersByReplicaThenShard) {
  for (const int64_t shards : divisors_of_workers()) {
    const comm::WorkerGrid grid(everyone(), shards);
    EXPECT_EQ(&grid.everyone(), &everyone());
    EXPECT_EQ(grid.num_shards(), shards);
    EXPECT_EQ(grid.num_replicas() * grid.num_shards(), everyone().size());
    EXPECT_EQ(grid.replica() * shards + grid.shard(), everyone().rank());
    EXPECT_EQ(grid.replicas().rank(), grid.replica());
    EXPECT_EQ(grid.shards().rank(), grid.shard());
    EXPECT_EQ(grid.replicas().members().at(grid.replica()), everyone().rank());
    EXPECT_EQ(grid.shards().members().at(grid.shard()), everyone().rank());
    EXPECT_EQ(std::ssize(grid.replicas().members()), grid.num_replicas());
  }
}

TEST(WorkerGrid, SumsWithinTheReplicasAndWithinTheShards) {
  for (const int64_t shards : divisors_of_workers()) {
    const comm::WorkerGrid first(everyone(), shards), grid = first;  // a copy has the same groups
    const Tensor replicas = at::full({3}, everyone().rank(), device()), both = replicas.clone();
    grid.replicas().all_reduce(replicas, comm::Reduction::kSum, {"test"});
    grid.shards().all_reduce(both, comm::Reduction::kSum, {"test"});
    int64_t same_shard = 0, same_replica = 0;
    for (int worker = 0; worker < everyone().size(); ++worker) {
      if (worker % shards == grid.shard()) same_shard += worker;
      if (worker / shards == grid.replica()) same_replica += worker;
    }
    EXPECT_EQ(replicas[0].item<int64_t>(), same_shard);
    EXPECT_EQ(both[2].item<int64_t>(), same_replica);
  }
}

TEST(WorkerGrid, IsAReplicaForEachWorkerUnlessToldOtherwise) {
  const comm::WorkerGrid grid = everyone();
  EXPECT_EQ(&grid.replicas(), &everyone());
  EXPECT_EQ(grid.num_shards(), 1);
  const Tensor x = random_of(1, {3});
  grid.shards().all_reduce(x, comm::Reduction::kSum, {"test"});
  EXPECT_TRUE(at::equal(x, random_of(1, {3})));
}

TEST(WorkerGrid, RefusesShardsThatDoNotDivideTheWorkers) {
  EXPECT_THROW(comm::WorkerGrid(everyone(), everyone().size() + 1), c10::Error);
  EXPECT_THROW(comm::WorkerGrid(everyone(), 0), c10::Error);
}

// A product of matrices whose inner dimension is divided: y = x + f(x W^T) V^T.
TEST(WorkersShards, ADividedComputationGivesItsPartsTheGradientsOfTheWholeOne) {
  const int n = everyone().size(), rank = everyone().rank();
  const int64_t width = 3, part = 2, hidden = part * n;
  const auto weight = [&] { return random_of(5, {hidden, width}); };
  const auto back = [&] { return random_of(6, {width, hidden}); };
  const Tensor x = random_of(7, {4, width});
  Tensor w = weight().set_requires_grad(true), v = back().set_requires_grad(true);
  const Tensor y = x + at::mm(at::mm(x, w.t()).tanh(), v.t());
  loss_of(y).backward();

  Tensor own_w = weight().narrow(0, rank * part, part).clone().set_requires_grad(true);
  Tensor own_v = back().narrow(1, rank * part, part).clone().set_requires_grad(true);
  const Tensor out = at::mm(at::mm(x, own_w.t()).tanh(), own_v.t());
  const Tensor own_y = x + comm::sum_over_shards(everyone(), out, {"test"});
  loss_of(own_y).backward();
  EXPECT_TRUE(at::allclose(own_y, y, 1e-13, 1e-13));
  EXPECT_TRUE(at::allclose(own_w.grad(), w.grad().narrow(0, rank * part, part), 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(own_v.grad(), v.grad().narrow(1, rank * part, part), 1e-12, 1e-12));
}

TEST(WorkersShards, WhatIsSummedIsLeftAsItWas) {
  const Tensor x = at::ones({2, 3}, device());
  const Tensor sum = comm::sum_over_shards(everyone(), x, {"test"});
  EXPECT_EQ(sum.sum().item<double>(), 6.0 * everyone().size());
  EXPECT_EQ(x.sum().item<double>(), 6.0);
}

// Rows are divided and gathered again, and each worker does something else with its own.
TEST(WorkersShards, DividedRowsHaveTheGradientsOfAllRows) {
  const int n = everyone().size(), rank = everyone().rank();
  for (const int64_t count : {2 * n, 2 * n + 1, n > 1 ? n - 1 : 1, 0}) {
    const comm::RowsOfWorker rows = comm::divide_rows(count, n);
    Tensor factors = at::empty({0, 1}, at::dtype(at::kDouble).device(device()));
    for (int worker = 0; worker < n; ++worker)
      factors = at::cat({factors, at::full({rows.at(worker), 1}, 0.5 + worker, factors.options())});
    Tensor x = random_of(8, {count, 3}).set_requires_grad(true);
    const Tensor y = x + (x * factors).tanh();
    loss_of(y).backward();

    Tensor own_x = random_of(8, {count, 3}).set_requires_grad(true);
    const Tensor own = comm::own_rows(everyone(), own_x, rows, {"test", 3});
    ASSERT_EQ(own.size(0), rows.at(rank));
    const Tensor done =
        comm::gather_rows(everyone(), (own * (0.5 + rank)).tanh(), rows, {"test", 3});
    ASSERT_EQ(done.sizes(), x.sizes());
    const Tensor own_y = own_x + done;
    loss_of(own_y).backward();
    EXPECT_TRUE(at::equal(own_y, y)) << count;
    EXPECT_TRUE(at::allclose(own_x.grad(), x.grad(), 1e-13, 1e-13)) << count;
  }
}

TEST(WorkersShards, RowsAreDividedInOrderAndAsEvenlyAsCanBe) {
  EXPECT_EQ(comm::divide_rows(12, 4), (comm::RowsOfWorker{3, 3, 3, 3}));
  EXPECT_EQ(comm::divide_rows(10, 4), (comm::RowsOfWorker{2, 3, 2, 3}));
  EXPECT_EQ(comm::divide_rows(1, 3), (comm::RowsOfWorker{0, 0, 1}));
  EXPECT_EQ(comm::divide_rows(0, 2), (comm::RowsOfWorker{0, 0}));
}

TEST(WorkersShards, AGroupOfOneChangesNothing) {
  const comm::WorkerGrid grid = everyone();
  const Tensor x = random_of(9, {3, 2});
  EXPECT_TRUE(comm::sum_over_shards(grid.shards(), x, {"test"}).is_same(x));
  EXPECT_TRUE(comm::own_rows(grid.shards(), x, {3}, {"test"}).is_same(x));
  EXPECT_TRUE(comm::gather_rows(grid.shards(), x, {3}, {"test"}).is_same(x));
}

TEST(WorkersShards, RowsOfAnotherNumberOfWorkersAreRefused) {
  const comm::RowsOfWorker rows(static_cast<size_t>(everyone().size()) + 1, 1);
  const Tensor x = at::zeros({everyone().size() + 1, 2}, device());
  EXPECT_NE(
      error_of([&] { comm::own_rows(everyone(), x, rows, {"test"}); }).find("own_rows (test)"),
      std::string::npos);
  EXPECT_NE(error_of([&] { comm::gather_rows(everyone(), x, rows, {"test"}); }), "");
}

}  // namespace
}  // namespace ballast::test
