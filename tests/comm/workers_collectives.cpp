// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/comm/workers.h"
#include "tests/support/error_of.h"

namespace ballast::test {
namespace {

using at::Tensor;
using comm::Reduction;

constexpr at::ScalarType kReducible[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                                         at::kLong,   at::kInt,   at::kByte};
constexpr at::ScalarType kMovable[] = {at::kDouble, at::kBFloat16, at::kInt, at::kByte, at::kBool};

// What worker `rank` has at `i`: whole numbers, so that sums are exact in every type.
int64_t value(int rank, int64_t i) { return (rank * 7 + i * 3) % 11 - (i % 2 == 0 ? 0 : 1) + 1; }

Tensor values(int rank, int64_t count, at::ScalarType type) {
  Tensor x = at::empty({count}, at::kLong);
  for (int64_t i = 0; i < count; ++i) x.data_ptr<int64_t>()[i] = value(rank, i);
  return x.to(device(), type);
}

// Whether all bits are as expected.
testing::AssertionResult same(const Tensor& x, const Tensor& expected) {
  if (at::equal(x.cpu(), expected.cpu().view(x.sizes()))) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "worker " << everyone().rank() << " has\n"
                                     << x.view({-1}) << "\ninstead of\n"
                                     << expected.view({-1});
}

Tensor sum_of_all(int64_t count, at::ScalarType type) {
  Tensor sum = values(0, count, at::kLong);
  for (int rank = 1; rank < everyone().size(); ++rank) sum += values(rank, count, at::kLong);
  return sum.to(type);
}

Tensor max_of_all(int64_t count, at::ScalarType type) {
  Tensor most = values(0, count, at::kLong);
  for (int rank = 1; rank < everyone().size(); ++rank)
    most = at::maximum(most, values(rank, count, at::kLong));
  return most.to(type);
}

TEST(Workers, AllReduceGivesTheSumOrMaximumToAll) {
  for (const at::ScalarType type : kReducible) {
    for (const int64_t count : {0, 1, 5, 1000, 40'000}) {
      Tensor x = values(everyone().rank(), count, type);
      everyone().all_reduce(x, Reduction::kSum, {"test"});
      EXPECT_TRUE(same(x, sum_of_all(count, type))) << type << " " << count;
      x = values(everyone().rank(), count, type);
      everyone().all_reduce(x, Reduction::kMax, {"test"});
      EXPECT_TRUE(same(x, max_of_all(count, type))) << type << " " << count;
    }
  }
}

TEST(Workers, ASumOfRoundedNumbersHasTheSameBitsOnAllAndEveryTime) {
  at::manual_seed(100 + everyone().rank());
  const Tensor own = at::randn({10'007}).to(device());
  Tensor first;
  for (int time = 0; time < 5; ++time) {
    Tensor sum = own.clone();
    everyone().all_reduce(sum, Reduction::kSum, {"test"});
    if (time == 0) first = sum;
    EXPECT_TRUE(at::equal(sum, first)) << "time " << time;
    Tensor of_first_worker = sum.clone();
    everyone().broadcast(of_first_worker, 0, {"test"});
    EXPECT_TRUE(at::equal(sum, of_first_worker));
  }
}

TEST(Workers, HalfPrecisionIsSummedInSinglePrecision) {
  // 256 + 1 is 256 in bfloat16: only a sum in float32 sees all the ones.
  Tensor x = at::full({3}, everyone().rank() == 0 ? 256 : 1, at::kBFloat16).to(device());
  everyone().all_reduce(x, Reduction::kSum, {"test"});
  const Tensor expected = at::full({3}, 256 + everyone().size() - 1, at::kFloat).to(at::kBFloat16);
  EXPECT_TRUE(same(x, expected));
}

TEST(Workers, ANanOfAnyWorkerIsTheMaximumOfAll) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (int culprit = 0; culprit < everyone().size(); ++culprit) {
      Tensor x = at::tensor({1.0 + everyone().rank(), everyone().rank() == culprit ? nan : 5.0})
                     .to(device(), type);
      everyone().all_reduce(x, Reduction::kMax, {"test"});
      EXPECT_EQ(x[0].item<double>(), everyone().size());
      EXPECT_TRUE(std::isnan(x[1].item<double>())) << type << " of worker " << culprit;
    }
  }
}

TEST(Workers, ReduceScatterGivesEachItsBlock) {
  const int n = everyone().size(), rank = everyone().rank();
  for (const at::ScalarType type : kReducible) {
    for (const int64_t count : {0, 1, 7, 3000}) {
      const Tensor in = values(rank, n * count, type);
      const Tensor expected =
          sum_of_all(n * count, type).slice(0, rank * count, (rank + 1) * count);
      Tensor out = at::empty({count}, in.options());
      everyone().reduce_scatter(out, in, Reduction::kSum, {"test"});
      EXPECT_TRUE(same(out, expected)) << type;
      EXPECT_TRUE(same(in, values(rank, n * count, type))) << "the input has changed";

      Tensor own_block = in.slice(0, rank * count, (rank + 1) * count);
      everyone().reduce_scatter(own_block, in, Reduction::kSum, {"test"});
      EXPECT_TRUE(same(own_block, expected)) << type << ", in place";
    }
  }
}

TEST(Workers, AllGatherPutsAllBehindEachOther) {
  const int n = everyone().size(), rank = everyone().rank();
  for (const at::ScalarType type : kMovable) {
    for (const int64_t count : {0, 1, 6, 2500}) {
      std::vector<Tensor> parts;
      for (int r = 0; r < n; ++r) parts.push_back(values(r, count, type));
      Tensor out = at::zeros({n, count}, type).to(device());
      everyone().all_gather(out, values(rank, count, type), {"test"});
      EXPECT_TRUE(same(out, at::cat(parts))) << type;

      Tensor in_place = at::zeros({n, count}, type).to(device());
      in_place[rank].copy_(values(rank, count, type));
      everyone().all_gather(in_place, in_place[rank], {"test"});
      EXPECT_TRUE(same(in_place, at::cat(parts))) << type << ", in place";
    }
  }
}

TEST(Workers, AllGatherOfUnevenRowsAndOfNone) {
  const int n = everyone().size(), rank = everyone().rank();
  for (const int64_t base : {0, 1, 4}) {
    comm::RowsOfWorker rows;
    std::vector<Tensor> parts;
    for (int r = 0; r < n; ++r) {
      rows.push_back(base * (r % 3));
      parts.push_back(values(r, rows.back() * 5, at::kFloat).view({-1, 5}));
    }
    const Tensor expected = at::cat(parts);
    Tensor out = at::empty_like(expected);
    everyone().all_gather_uneven(out, parts[rank], rows, {"test"});
    EXPECT_TRUE(same(out, expected)) << base;
  }
}

// Row j that worker `from` sends to worker `to`.
int64_t row_id(int from, int to, int64_t j) { return from * 10'000 + to * 100 + j; }

// Sends counts(from, to) rows of `width` and checks every one that comes.
template <typename Counts>
void expect_exchange(Counts counts, int64_t width, at::ScalarType type) {
  const int n = everyone().size(), rank = everyone().rank();
  comm::RowsOfWorker send, receive;
  std::vector<int64_t> sent, expected;
  for (int other = 0; other < n; ++other) {
    send.push_back(counts(rank, other));
    receive.push_back(counts(other, rank));
    for (int64_t j = 0; j < send.back(); ++j) sent.push_back(row_id(rank, other, j));
    for (int64_t j = 0; j < receive.back(); ++j) expected.push_back(row_id(other, rank, j));
  }
  const auto tensor = [&](const std::vector<int64_t>& rows) {
    return at::tensor(rows, at::kLong)
        .view({-1, 1})
        .expand({-1, width})
        .to(device(), type)
        .contiguous();
  };
  Tensor out = at::full({std::ssize(expected), width}, -1, type).to(device());
  everyone().all_to_all_uneven(out, tensor(sent), send, receive, {"test", 3});
  EXPECT_TRUE(same(out, tensor(expected))) << type << " width " << width;
}

TEST(Workers, AllToAllOfUnevenRowsAndOfNone) {
  for (const at::ScalarType type : {at::kDouble, at::kInt}) {
    for (const int64_t width : {0, 1, 3, 900}) {
      expect_exchange([](int from, int to) { return (from * 3 + to * 5) % 7; }, width, type);
      expect_exchange([](int from, int to) { return from == to ? 2 : 0; }, width, type);
      expect_exchange([](int from, int) { return from == 0 ? 4 : 0; }, width, type);
      expect_exchange([](int, int) { return 0; }, width, type);
      expect_exchange([](int, int) { return 3; }, width, type);
    }
  }
}

TEST(Workers, AllToAllOfEqualBlocksTransposesThem) {
  const int n = everyone().size(), rank = everyone().rank();
  for (const at::ScalarType type : kMovable) {
    for (const int64_t count : {0, 1, 5, 4000}) {
      std::vector<Tensor> expected;
      for (int r = 0; r < n; ++r)
        expected.push_back(values(r, n * count, type).slice(0, rank * count, (rank + 1) * count));
      Tensor out = at::zeros({n * count}, type).to(device());
      everyone().all_to_all(out, values(rank, n * count, type), {"test"});
      EXPECT_TRUE(same(out, at::cat(expected))) << type << " " << count;
    }
  }
}

TEST(Workers, BroadcastFromEach) {
  for (const at::ScalarType type : kMovable) {
    for (int root = 0; root < everyone().size(); ++root) {
      Tensor x = values(everyone().rank(), 77, type);
      everyone().broadcast(x, root, {"test"});
      EXPECT_TRUE(same(x, values(root, 77, type))) << type << " from " << root;
    }
  }
}

TEST(Workers, CallsThatHaveBegunEndInAnyOrderOfWaits) {
  const int n = everyone().size(), rank = everyone().rank();
  std::vector<Tensor> sums, in, out;
  std::vector<comm::Pending> pending;
  for (int i = 0; i < 12; ++i) {
    sums.push_back(values(rank + i * n, 2000, at::kFloat));
    pending.push_back(everyone().begin_all_reduce(sums.back(), Reduction::kSum, {"test", i}));
    in.push_back(at::full({n, 50}, rank * 100 + i, at::kInt).to(device()));
    out.push_back(at::empty({n, 50}, at::kInt).to(device()));
    pending.push_back(everyone().begin_all_to_all(out.back(), in.back(), {"test", i}));
  }
  for (size_t i = pending.size(); i-- > 0;) pending[i].wait();
  for (comm::Pending& one : pending) {
    EXPECT_TRUE(one.done());
    one.wait();  // again is free
  }
  for (int i = 0; i < 12; ++i) {
    Tensor expected = at::zeros({2000}).to(device());
    for (int r = 0; r < n; ++r) expected += values(r + i * n, 2000, at::kFloat);
    EXPECT_TRUE(same(sums[i], expected));
    for (int r = 0; r < n; ++r) EXPECT_TRUE(out[i][r].eq(r * 100 + i).all().item<bool>());
  }
}

TEST(Workers, ACallThatNobodyWaitsForHarmsNothing) {
  for (int i = 0; i < 20; ++i) {
    // The tensor is ours no more, and goes when the call has ended.
    (void)everyone().begin_all_reduce(at::ones({50'000}).to(device()), Reduction::kSum,
                                      {"forgotten"});
  }
  Tensor x = at::ones({3}).to(device());
  everyone().all_reduce(x, Reduction::kSum, {"test"});
  EXPECT_TRUE(same(x, at::full({3}, everyone().size(), at::kFloat)));
}

TEST(Workers, SplitGroupsWorkAtTheSameTimeAndInReverse) {
  const int n = everyone().size(), rank = everyone().rank();
  const auto parity = everyone().split(rank % 2, 0, "parity");
  EXPECT_EQ(parity->rank(), rank / 2);
  EXPECT_EQ(parity->size(), (n + 1 - rank % 2) / 2);
  const auto reversed = everyone().split(0, -rank, "reversed");
  EXPECT_EQ(reversed->rank(), n - 1 - rank);
  Tensor in_parity = at::tensor({int64_t{rank}}).to(device()), in_all = in_parity.clone();
  comm::Pending first = parity->begin_all_reduce(in_parity, Reduction::kSum, {"test"});
  comm::Pending second = everyone().begin_all_reduce(in_all, Reduction::kSum, {"test"});
  second.wait();
  first.wait();
  int64_t of_parity = 0;
  for (int r = rank % 2; r < n; r += 2) of_parity += r;
  EXPECT_EQ(in_parity.item<int64_t>(), of_parity);
  EXPECT_EQ(in_all.item<int64_t>(), n * (n - 1) / 2);

  Tensor order = at::empty({n}, at::kLong).to(device());
  reversed->all_gather(order, at::tensor({int64_t{rank}}).to(device()), {"test"});
  EXPECT_EQ(order[0].item<int64_t>(), n - 1);
  const auto of_split = parity->split(0, 0, "parity again");
  EXPECT_EQ(of_split->size(), parity->size());
  of_split->barrier({"test"});
}

TEST(Workers, TensorsOfTheHostGoTheirOwnWayBetweenThose) {
  const int n = everyone().size(), rank = everyone().rank();
  Tensor here = at::full({300'000}, rank + 1, at::kFloat).to(device());
  Tensor host = at::tensor({int64_t{rank}});
  comm::Pending first = everyone().begin_all_reduce(here, Reduction::kSum, {"test"});
  everyone().all_reduce(host, Reduction::kSum, {"test"});
  everyone().barrier({"test"});
  first.wait();
  EXPECT_EQ(host.item<int64_t>(), n * (n - 1) / 2);
  EXPECT_TRUE(here.eq(n * (n + 1) / 2).all().item<bool>());
}

TEST(Workers, WhatIsReadWhileItIsComputedIsComplete) {
  // On a GPU the call begins after all that was queued before, and results are used without
  // waiting.
  const int n = everyone().size(), rank = everyone().rank();
  for (int time = 0; time < 10; ++time) {
    Tensor x = at::full({64, 512}, 1.0 / 512).to(device());
    const Tensor mixing = at::full({512, 512}, 1.0 / 512).to(device());
    for (int i = 0; i < 50; ++i) x = x.matmul(mixing);
    x.fill_(rank + 1);
    everyone().all_reduce(x, Reduction::kSum, {"test"});
    EXPECT_TRUE(x.mul(2).eq(n * (n + 1)).all().item<bool>()) << time;
  }
}

TEST(Workers, WhatDoesNotFitIsRefusedBeforeAnythingIsSent) {
  comm::Communicator& all = everyone();
  const int n = all.size();
  const auto expect = [](const std::string& part, auto action) {
    const std::string message = error_of(action);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("(experts, layer 6)"), std::string::npos) << message;
  };
  const comm::Label label{"experts", 6};
  const Tensor x = at::zeros({n * 2, 3});
  expect("undefined", [&] { all.all_reduce({}, Reduction::kSum, label); });
  expect("not contiguous", [&] { all.broadcast(x.t(), 0, label); });
  expect("cannot be reduced", [&] { all.all_reduce(x.to(at::kBool), Reduction::kSum, label); });
  expect("no worker", [&] { all.broadcast(x, n, label); });
  expect("times as many", [&] { all.all_gather(at::zeros({n * 6 + 1}), x[0], label); });
  expect("type or device", [&] { all.all_to_all(x.to(at::kDouble), x, label); });
  expect("overlap", [&] { all.all_to_all(x, x, label); });
  expect("entries", [&] {
    all.all_to_all_uneven(at::zeros({2, 3}), at::zeros({2, 3}), {}, {}, label);
  });
  comm::RowsOfWorker rows(n, 2), negative(n, 2);
  negative[0] = -2;
  expect("negative", [&] { all.all_to_all_uneven(at::empty_like(x), x, negative, rows, label); });
  expect("in all", [&] { all.all_to_all_uneven(at::zeros({1, 3}), x, rows, rows, label); });
  expect("differ in size", [&] {
    all.all_to_all_uneven(at::zeros({n * 2, 4}), x, rows, rows, label);
  });
  EXPECT_NE(error_of([&] { (void)all.split(-1, 0, "nobody"); }).find("negative"),
            std::string::npos);
}

}  // namespace
}  // namespace ballast::test
