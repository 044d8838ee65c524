// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include "ballast/comm/collectives.h"
#include "tests/comm/workers.h"
#include "tests/support/error_of.h"

namespace ballast::test {
namespace {

using at::Tensor;

Tensor random_of(int seed, at::IntArrayRef shape) {
  at::manual_seed(seed);
  return at::randn(shape, at::kDouble).to(device());
}

// A loss over all workers: each takes a nonlinear function of what it has received.
double loss_of_all(const Tensor& own) {
  Tensor sum = own.detach().clone().view({1});
  everyone().all_reduce(sum, comm::Reduction::kSum, {"loss"});
  return sum.item<double>();
}

// Compares the gradient by each worker's x, one worker after another, with central differences of
// the loss over all. `exchange` is collective, so all workers compute each loss together.
template <typename Exchange>
void expect_gradient_over_workers(Tensor x, Exchange exchange) {
  const auto loss = [&](const Tensor& of) {
    const Tensor y = exchange(of);
    return (y.sin() * (y + 0.1 * everyone().rank())).sum();
  };
  x.set_requires_grad(true);
  loss(x).backward();
  const Tensor gradient = x.grad();
  ASSERT_TRUE(gradient.defined());
  const at::NoGradGuard no_grad;
  const double h = 1e-5;
  for (int worker = 0; worker < everyone().size(); ++worker) {
    Tensor count = at::tensor({x.numel()});
    everyone().broadcast(count, worker, {"test"});
    for (int64_t i = 0; i < count.item<int64_t>(); ++i) {
      Tensor moved = x.detach().clone();
      const bool mine = worker == everyone().rank();
      const auto at_distance = [&](double distance) {
        if (mine) moved.view({-1})[i] += distance;
        const double result = loss_of_all(loss(moved));
        if (mine) moved.view({-1})[i] -= distance;
        return result;
      };
      const double difference = (at_distance(h) - at_distance(-h)) / (2 * h);
      // Differences of a smooth function in double are good to about 1e-9 of the loss.
      if (mine) {
        EXPECT_NEAR(gradient.view({-1})[i].item<double>(), difference, 1e-7) << i;
      }
    }
  }
}

TEST(WorkersGradient, OfEqualBlocks) {
  const int n = everyone().size();
  expect_gradient_over_workers(random_of(everyone().rank(), {n * 2, 2}), [](const Tensor& x) {
    const comm::RowsOfWorker rows(everyone().size(), 2);
    return comm::all_to_all(everyone(), x, rows, rows, {"test", 1});
  });
}

// Three exchanges that are under way together, each with a product between its ends and another's.
TEST(WorkersGradient, OfRowsUnderWay) {
  const int n = everyone().size();
  expect_gradient_over_workers(random_of(everyone().rank(), {n * 2, 3}), [](const Tensor& x) {
    const std::vector<Tensor> parts = x.split(1, 1);
    std::vector<comm::RowsUnderWay> ways;
    std::vector<Tensor> arriving, arrived;
    for (int i = 0; i < 3; ++i) ways.emplace_back(everyone(), comm::Label{"test", i});
    for (int i = 0; i < 3; ++i) arriving.push_back(ways[i].begin(parts[i].sin()));
    for (int i = 2; i >= 0; --i) arrived.push_back(ways[i].finish(arriving[i]) * (i + 1));
    return at::cat(arrived, 1);
  });
}

// A call that is under way and its graph do not hold each other: what nobody waits for goes, and
// the workers go on.
TEST(WorkersGradient, OfRowsThatNobodyWaitsForIsLetGo) {
  Tensor x = random_of(everyone().rank(), {everyone().size() * 2, 3}).requires_grad_();
  {
    const comm::RowsUnderWay way(everyone(), {"test", 1});
    const Tensor arriving = way.begin(x);
  }
  EXPECT_EQ(x.use_count(), 1U);
  everyone().barrier({"test", 2});
}

TEST(WorkersGradient, OfUnevenRowsAndOfNone) {
  const int n = everyone().size(), rank = everyone().rank();
  comm::RowsOfWorker send, receive;
  for (int other = 0; other < n; ++other) {
    send.push_back((rank * 2 + other * 3) % 4);  // zeros among them
    receive.push_back((other * 2 + rank * 3) % 4);
  }
  int64_t rows = 0;
  for (const int64_t count : send) rows += count;
  expect_gradient_over_workers(random_of(10 + rank, {rows, 2}), [&](const Tensor& x) {
    return comm::all_to_all(everyone(), x, send, receive, {"test", 2});
  });
}

TEST(WorkersGradient, ThereAndBackIsTheIdentityAndSoIsItsGradient) {
  const int n = everyone().size(), rank = everyone().rank();
  comm::RowsOfWorker send;
  for (int other = 0; other < n; ++other) send.push_back((rank + other) % 3);
  const comm::RowsOfWorker& receive = send;  // as many there as back
  int64_t rows = 0;
  for (const int64_t count : send) rows += count;
  Tensor x = random_of(20 + rank, {rows, 4}).set_requires_grad(true);
  const Tensor there = comm::all_to_all(everyone(), x, send, receive, {"dispatch"});
  const Tensor back = comm::all_to_all(everyone(), there, receive, send, {"combine"});
  EXPECT_TRUE(at::equal(back, x));
  const Tensor weights = random_of(30 + rank, {rows, 4});
  back.mul(weights).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), weights));
}

TEST(WorkersGradient, AGradientThatIsNotContiguousIsFine) {
  const int n = everyone().size();
  Tensor x = random_of(everyone().rank(), {n, 3}).set_requires_grad(true);
  const comm::RowsOfWorker rows(n, 1);
  const Tensor y = comm::all_to_all(everyone(), x, rows, rows, {"test"});
  y.t().contiguous().sum().backward();  // an expanded gradient
  EXPECT_TRUE(at::equal(x.grad(), at::ones_like(x)));
}

TEST(WorkersGradient, ATensorWithoutRowsIsRefused) {
  const comm::RowsOfWorker rows(everyone().size(), 1);
  const auto exchange = [&] { comm::all_to_all(everyone(), at::zeros({}), rows, rows, {"test"}); };
  EXPECT_NE(error_of(exchange).find("float32 []"), std::string::npos);
}

}  // namespace
}  // namespace ballast::test
