// SPDX-License-Identifier: Apache-2.0
// Calls within a graph. Where the workers' tensors do not go from GPU to GPU, the same calls
// without one.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ballast/kernels/gpu_graph.h"
#include "tests/comm/workers.h"

namespace ballast::test {
namespace {

using at::Tensor;
using comm::Reduction;

// Asked of how they were started, not of what is tested.
bool are_recorded() { return device().is_cuda() && stay_on_gpus(); }

TEST(RecordedCalls, ArePossibleWhereTheHostHasNoPartInThem) {
  EXPECT_EQ(everyone().can_record(), stay_on_gpus());
}

class Recording {
 public:
  explicit Recording(std::function<void()> work) : work_(std::move(work)) {
    work_();  // connects the workers
    if (!are_recorded()) return;
    graph_ = kernels::make_gpu_graph(nullptr);
    everyone().record([&] { graph_->record(work_); }, {"test"});
  }
  void replay() const {
    everyone().replay([&] { graph_ == nullptr ? work_() : graph_->replay(); }, {"test"});
  }

 private:
  std::function<void()> work_;
  std::unique_ptr<kernels::GpuGraph> graph_;
};

// Of a worker at a time: whole numbers, so that sums are exact in every type.
Tensor values(int rank, int time, int64_t count, at::ScalarType type) {
  return (at::arange(count, at::kLong) * (rank + 3) + 5 * time).remainder(13).to(device(), type);
}

Tensor sum_of_all(int time, int64_t count, at::ScalarType type) {
  Tensor sum = values(0, time, count, at::kLong);
  for (int rank = 1; rank < everyone().size(); ++rank) sum += values(rank, time, count, at::kLong);
  return sum.to(type);
}

// Half precision and maxima are reduced by work of our own between NCCL's calls.
TEST(RecordedCalls, GiveInEveryReplayWhatTheyGivePlainly) {
  comm::Communicator& all = everyone();
  const int64_t n = all.size(), count = 1001;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kLong}) {
    SCOPED_TRACE(type);
    const Tensor given = values(all.rank(), 0, count * n, type);
    const Tensor sum = at::empty_like(given), most = at::empty_like(given),
                 moved = at::empty_like(given);
    const Tensor part = at::empty({count}, given.options()), gathered = at::empty_like(given),
                 root = at::empty_like(given);
    const Recording recording([&] {
      sum.copy_(given);
      all.all_reduce(sum, Reduction::kSum, {"test"});
      most.copy_(given);
      all.all_reduce(most, Reduction::kMax, {"test"});
      all.all_to_all(moved, given, {"test"});
      all.reduce_scatter(part, given, Reduction::kSum, {"test"});
      all.all_gather(gathered, part, {"test"});
      root.copy_(given);
      all.broadcast(root, static_cast<int>(n - 1), {"test"});
    });
    for (int time = 1; time < 4; ++time) {
      given.copy_(values(all.rank(), time, count * n, type));
      recording.replay();
      const Tensor expected = sum_of_all(time, count * n, type);
      EXPECT_TRUE(at::equal(sum, expected)) << time;
      EXPECT_TRUE(at::equal(gathered, expected)) << time;
      Tensor highest = values(0, time, count * n, type);
      for (int rank = 0; rank < n; ++rank) {
        const Tensor theirs = values(rank, time, count * n, type);
        highest = at::maximum(highest, theirs);
        EXPECT_TRUE(at::equal(moved.narrow(0, rank * count, count),
                              theirs.narrow(0, all.rank() * count, count)));
        if (rank == n - 1) {
          EXPECT_TRUE(at::equal(root, theirs));
        }
      }
      EXPECT_TRUE(at::equal(most, highest)) << time;
    }
  }
}

// As gradients are: begun one by one, looked after, waited for together.
TEST(RecordedCalls, GoOnBesideOtherWorkUntilTheyAreWaitedFor) {
  comm::Communicator& all = everyone();
  constexpr int64_t kCount = 30'000;
  std::vector<Tensor> given, sums;
  for (int i = 0; i < 4; ++i) {
    given.push_back(values(all.rank(), i, kCount, at::kFloat));
    sums.push_back(at::empty_like(given.back()));
  }
  const Tensor beside = at::zeros({kCount}, given[0].options());
  const Recording recording([&] {
    std::vector<comm::Pending> pending;
    beside.zero_();
    for (size_t i = 0; i < given.size(); ++i) {
      for (comm::Pending& earlier : pending) earlier.done();
      sums[i].copy_(given[i]);
      pending.push_back(all.begin_all_reduce(sums[i], Reduction::kSum, {"test"}));
      beside.add_(given[i]);
    }
    for (auto last = pending.rbegin(); last != pending.rend(); ++last) last->wait();
  });
  for (int time = 1; time < 4; ++time) {
    Tensor expected = at::zeros_like(beside);
    for (int i = 0; i < 4; ++i)
      expected +=
          given[static_cast<size_t>(i)].copy_(values(all.rank(), time + i, kCount, at::kFloat));
    recording.replay();
    for (int i = 0; i < 4; ++i)
      EXPECT_TRUE(
          at::equal(sums[static_cast<size_t>(i)], sum_of_all(time + i, kCount, at::kFloat)));
    EXPECT_TRUE(at::equal(beside, expected));
  }
}

// As tokens go to experts in chunks: of each direction one is under way, with work beside it.
TEST(RecordedCalls, OfChunksThereAndBackGoOnBesideOtherWork) {
  comm::Communicator& all = everyone();
  constexpr int64_t kCount = 10'000;
  for (const size_t chunks : {size_t{2}, size_t{5}}) {
    SCOPED_TRACE(chunks);
    const auto given_at = [&](int rank, int time, size_t chunk) {
      return values(rank, time + static_cast<int>(chunk), kCount * all.size(), at::kFloat);
    };
    std::vector<Tensor> given, there, computed, back;
    for (size_t i = 0; i < chunks; ++i) {
      given.push_back(given_at(all.rank(), 0, i));
      for (auto* tensors : {&there, &computed, &back}) tensors->push_back(at::empty_like(given[0]));
    }
    const Recording recording([&] {
      std::vector<comm::Pending> out(chunks), home(chunks);
      const auto set_out = [&](size_t i) {
        out[i] = all.begin_all_to_all(there[i], given[i], {"there", 1});
      };
      set_out(0);
      for (size_t i = 0; i < chunks; ++i) {
        all.finish_all_to_all(out[i], {"there", 1});
        if (i + 1 < chunks) set_out(i + 1);
        computed[i].copy_(there[i]).mul_(2);
        if (i > 0) all.finish_all_to_all(home[i - 1], {"back", 1});
        home[i] = all.begin_all_to_all(back[i], computed[i], {"back", 1});
      }
      all.finish_all_to_all(home.back(), {"back", 1});
    });
    for (int time = 1; time < 4; ++time) {
      for (size_t i = 0; i < chunks; ++i) given[i].copy_(given_at(all.rank(), time, i));
      recording.replay();
      for (size_t i = 0; i < chunks; ++i) {
        for (int rank = 0; rank < all.size(); ++rank)
          EXPECT_TRUE(at::equal(there[i].narrow(0, rank * kCount, kCount),
                                given_at(rank, time, i).narrow(0, all.rank() * kCount, kCount)));
        EXPECT_TRUE(at::equal(back[i], 2 * given[i])) << time;
      }
    }
  }
}

TEST(RecordedCalls, OfPartsOfTheWorkersAreRecordedWithThoseOfAll) {
  comm::Communicator& all = everyone();
  const auto part = all.split(all.rank() % 2, all.rank(), "parity");
  const Tensor given = at::empty({500}, at::TensorOptions(device()).dtype(at::kDouble)),
               sums = at::empty_like(given);
  const Recording recording([&] {
    sums.copy_(given);
    part->all_reduce(sums, Reduction::kSum, {"test"});
    all.all_reduce(sums, Reduction::kSum, {"test"});
  });
  for (int time = 1; time < 4; ++time) {
    given.fill_(time * (all.rank() + 1));
    recording.replay();
    double expected = 0;  // each has its part's sum
    for (int rank = 0; rank < all.size(); ++rank) {
      for (int other = rank % 2; other < all.size(); other += 2) expected += time * (other + 1);
    }
    EXPECT_TRUE(sums.eq(expected).all().item<bool>()) << time;
  }
}

TEST(RecordedCalls, AndPlainOnesFollowEachOther) {
  comm::Communicator& all = everyone();
  const Tensor x = at::ones({200'000}, at::TensorOptions(device()).dtype(at::kDouble));
  const Recording recording([&] { all.all_reduce(x, Reduction::kSum, {"test"}); });
  x.fill_(1);
  double expected = 1;
  for (int time = 0; time < 5; ++time) {
    recording.replay();
    all.all_reduce(x, Reduction::kSum, {"test"});
    expected *= all.size() * all.size();
  }
  EXPECT_TRUE(x.eq(expected).all().item<bool>());
}

// Also one that broke off between a call's begin and its end.
TEST(RecordedCalls, ARecordingThatFailsLeavesTheWorkersAsTheyWere) {
  if (!are_recorded()) return;  // nothing can fail
  comm::Communicator& all = everyone();
  const Tensor x = at::ones({1000}, at::TensorOptions(device()).dtype(at::kFloat));
  all.all_reduce(x, Reduction::kSum, {"test"});
  const auto graph = kernels::make_gpu_graph(nullptr);
  const auto breaks_off = [&] {
    const comm::Pending pending = all.begin_all_reduce(x, Reduction::kSum, {"test"});
    throw std::runtime_error("it broke off");
  };
  EXPECT_THROW(all.record([&] { graph->record(breaks_off); }, {"test"}), std::runtime_error);
  const auto waits = [&] {
    all.all_reduce(x, Reduction::kSum, {"test"});
    (void)x.cpu();
  };
  EXPECT_ANY_THROW(all.record([&] { graph->record(waits); }, {"test"}));
  x.fill_(1);
  all.all_reduce(x, Reduction::kSum, {"test"});
  EXPECT_TRUE(x.eq(all.size()).all().item<bool>());
  const Recording recording([&] { all.all_reduce(x, Reduction::kSum, {"test"}); });
  x.fill_(1);
  recording.replay();
  EXPECT_TRUE(x.eq(all.size()).all().item<bool>());
}

}  // namespace
}  // namespace ballast::test
