// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/comm/agreement.h"
#include "ballast/comm/worker_grid.h"
#include "tests/comm/workers.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::test {
namespace {

using at::Tensor;
using testing::HasSubstr;

// The message of the SharedError that all workers throw alike.
template <typename Action>
std::string shared_error_of(Action action) {
  std::string message = "no error";
  try {
    action();
  } catch (const comm::SharedError& error) {
    message = error.what();
  }
  Tensor text = at::zeros({2000}, at::kByte);
  std::copy(message.begin(), message.end(), text.data_ptr<uint8_t>());
  const Tensor own = text.clone();
  everyone().broadcast(text, 0, {"test"});
  EXPECT_TRUE(at::equal(own, text)) << message;
  return message;
}

TEST(WorkersAgreement, WhatIsEqualPasses) {
  const std::vector<comm::Fact> facts{{"version", "0.1.0"}, {"step", "17"}, {"empty", ""}};
  EXPECT_EQ(shared_error_of([&] { comm::check_agreement(everyone(), facts, {"start"}); }),
            "no error");
  EXPECT_EQ(shared_error_of([&] { comm::check_agreement(everyone(), {}, {"start"}); }), "no error");
}

TEST(WorkersAgreement, WhoDiffersAndHowIsToldOnAll) {
  const int n = everyone().size(), rank = everyone().rank();
  if (n == 1) return;  // one always agrees with itself
  std::vector<comm::Fact> facts{{"version", "0.1.0"},
                                {"model.width", rank == n - 1 ? "512" : "256"},
                                {"odd 3 name", rank % 2 == 0 ? "" : "7 seven"}};
  if (rank == 0) facts.push_back({"only.first", "yes"});
  const std::string message =
      shared_error_of([&] { comm::check_agreement(everyone(), facts, {"start"}); });
  EXPECT_THAT(message, HasSubstr("do not agree (start)"));
  EXPECT_THAT(message, HasSubstr("512 on worker " + std::to_string(n - 1)));
  EXPECT_THAT(message, HasSubstr("256 on worker"));
  EXPECT_THAT(message, HasSubstr("odd 3 name: "));
  EXPECT_THAT(message, HasSubstr("yes on worker 0"));
  EXPECT_THAT(message, HasSubstr("not there on worker"));
  EXPECT_THAT(message, testing::Not(HasSubstr("version")));
  everyone().barrier({"goes on"});
}

TEST(WorkersAgreement, EqualTensorsPass) {
  at::manual_seed(3);
  const std::vector<comm::NamedTensor> tensors{{"a", at::randn({7, 3}).to(device())},
                                               {"none", at::empty({0}).to(device())},
                                               {"b", at::randn({5}).to(device(), at::kBFloat16)}};
  EXPECT_EQ(shared_error_of([&] { comm::check_equal(everyone(), tensors, {"step 5"}); }),
            "no error");
  EXPECT_EQ(shared_error_of([&] { comm::check_equal(everyone(), {}, {"step 5"}); }), "no error");
}

TEST(WorkersAgreement, ATensorThatHasDriftedIsNamedWithItsWorker) {
  const int n = everyone().size(), rank = everyone().rank();
  if (n == 1) return;
  at::manual_seed(4);
  std::vector<comm::NamedTensor> tensors{{"layer.0.weight", at::randn({6})},
                                         {"layer.1.weight", at::zeros({3, 4}).to(device())},
                                         {"layer.2.weight", at::ones({2})}};
  if (rank == n - 1) {
    tensors[1].tensor[1][2] = 0.25;
    tensors[1].tensor[0][0] = -0.0;  // other bits, the same number
    tensors[2].tensor[0] = 3;
  }
  const std::string message =
      shared_error_of([&] { comm::check_equal(everyone(), tensors, {"step 5"}); });
  EXPECT_THAT(message, HasSubstr("2 of 3 tensors"));
  EXPECT_THAT(message, HasSubstr("layer.1.weight"));
  EXPECT_THAT(message, HasSubstr("worker " + std::to_string(n - 1) + " from worker 0"));
  EXPECT_THAT(message, HasSubstr("2 of 12 elements, by at most 0.25"));
}

TEST(WorkersAgreement, InAPartOfTheWorkersTheyKeepTheirNumbers) {
  const int n = everyone().size(), rank = everyone().rank();
  if (n % 2 != 0 || n == 2) return;
  const comm::WorkerGrid grid(everyone(), 2);
  const std::vector<comm::NamedTensor> tensors{{"w", at::full({3}, rank == n - 1 ? 2 : 1)}};
  const std::vector<comm::Fact> facts{{"width", rank == n - 1 ? "9" : "8"}};
  const auto work = [&] {
    if (rank == n - 1) fail("it broke");
  };
  const std::string drift =
      error_of([&] { comm::check_equal(grid.replicas(), tensors, {"step 5"}); });
  const std::string facts_differ =
      error_of([&] { comm::check_agreement(grid.replicas(), facts, {"start"}); });
  const std::string broken =
      error_of([&] { comm::all_or_none(grid.replicas(), work, {"saving"}); });
  if (grid.shard() == 0) {
    for (const std::string& message : {drift, facts_differ, broken}) EXPECT_EQ(message, "no error");
    return;
  }
  EXPECT_THAT(drift, HasSubstr("1 of 1 tensors that the replicas of shard 1 share are no longer"));
  // Where there are two camps of one, the first is right.
  EXPECT_THAT(drift, HasSubstr(fmt::format("worker {} from worker 1: 3 of 3", n - 1)));
  EXPECT_THAT(facts_differ, HasSubstr(fmt::format("9 on worker {}", n - 1)));
  EXPECT_EQ(broken, fmt::format("worker {}: it broke", n - 1));
}

TEST(WorkersAgreement, AnotherShapeIsToldBeforeAnythingIsCompared) {
  const int n = everyone().size(), rank = everyone().rank();
  if (n == 1) return;
  const std::vector<comm::NamedTensor> tensors{{"w", at::zeros({rank == 1 ? 5 : 4})}};
  EXPECT_THAT(shared_error_of([&] { comm::check_equal(everyone(), tensors, {"step 5"}); }),
              HasSubstr("float32 [5] on worker 1"));
}

TEST(WorkersAgreement, AFolderThatAllSeePassesAndIsLeftAsItWas) {
  TemporaryFolder folder;
  Tensor path = at::zeros({500}, at::kByte);
  const std::string own = folder.path();
  std::copy(own.begin(), own.end(), path.data_ptr<uint8_t>());
  everyone().broadcast(path, 0, {"test"});
  const std::string of_first = reinterpret_cast<const char*>(path.data_ptr<uint8_t>());
  EXPECT_EQ(shared_error_of([&] { comm::check_same_folder(everyone(), of_first, {"run"}); }),
            "no error");
  EXPECT_TRUE(std::filesystem::is_empty(of_first));
  everyone().barrier({"test"});
}

TEST(WorkersAgreement, AFolderOfOnesOwnIsRefused) {
  if (everyone().size() == 1) return;
  const TemporaryFolder folder;  // another one on each
  const std::string message = [&] {
    try {
      comm::check_same_folder(everyone(), folder.path(), {"run"});
    } catch (const comm::SharedError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  }();
  EXPECT_THAT(message, HasSubstr("not see what worker 0 writes into"));
  EXPECT_THAT(message, HasSubstr(everyone().size() == 2 ? "worker 1 does" : "workers 1, 2"));
}

TEST(WorkersAgreement, WhoHasLostWorkersTellsNobody) {
  const auto lose = [] { throw comm::WorkersLost("worker 9 is gone"); };
  EXPECT_THROW(comm::all_or_none(everyone(), lose, {"saving"}), comm::WorkersLost);
}

TEST(WorkersAgreement, AFolderThatIsNotThereIsRefused) {
  EXPECT_THAT(shared_error_of([] { comm::check_same_folder(everyone(), "/nowhere/run", {"run"}); }),
              HasSubstr("worker 0 cannot write into /nowhere/run"));
}

}  // namespace
}  // namespace ballast::test
