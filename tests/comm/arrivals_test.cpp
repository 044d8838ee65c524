// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "ballast/comm/missing.h"

namespace ballast::comm {
namespace {

using testing::HasSubstr;
using testing::Not;
using Answer = WorkerState::Answer;

constexpr uint64_t kSecret = 77;
constexpr auto kPatience = std::chrono::milliseconds(2000);

// Three workers in one process, each with a thread and a port of its own.
class ThreeWorkers : public testing::TestWithParam<Reach> {
 protected:
  ThreeWorkers() {
    for (int i = 0; i < 3; ++i) workers_[i].emplace(i, kSecret, GetParam());
    meet();
  }
  void meet() {
    std::vector<std::string> addresses;
    for (auto& worker : workers_) addresses.push_back(worker ? worker->address() : addresses[0]);
    for (auto& worker : workers_) {
      if (worker) worker->meet(addresses);
    }
  }
  std::vector<WorkerState> ask(CallNumber call) {
    const int others[] = {1, 2};
    return workers_[0]->ask(others, call, kPatience);
  }

  std::optional<Arrivals> workers_[3];
};

TEST_P(ThreeWorkers, TellWhereTheyAre) {
  workers_[1]->began({5, 1}, "first");
  workers_[1]->began({5, 2}, "second");
  workers_[1]->began({6, 1}, "of another group");
  workers_[1]->waits(true);
  const auto at_second = ask({5, 2});
  EXPECT_EQ(at_second[0].worker, 1);
  EXPECT_EQ(at_second[0].answer, Answer::kAnswered);
  EXPECT_TRUE(at_second[0].arrived);
  EXPECT_TRUE(at_second[0].waiting);
  EXPECT_EQ(at_second[0].call, "second");
  EXPECT_EQ(at_second[0].last_call, "of another group");
  EXPECT_EQ(at_second[1].answer, Answer::kAnswered);
  EXPECT_FALSE(at_second[1].arrived);
  EXPECT_EQ(at_second[1].last_call, "");
  const auto at_third = ask({5, 3});
  EXPECT_FALSE(at_third[0].arrived);
  EXPECT_EQ(at_third[0].call, "");
}

TEST_P(ThreeWorkers, ACallOfLongAgoIsNotConfusedWithALaterOne) {
  for (uint64_t i = 1; i <= 100; ++i) workers_[1]->began({5, i}, std::to_string(i));
  EXPECT_EQ(ask({5, 99})[0].call, "99");
  const auto early = ask({5, 4});
  EXPECT_TRUE(early[0].arrived);
  EXPECT_EQ(early[0].call, "");
}

TEST_P(ThreeWorkers, LongTextsAreCut) {
  workers_[1]->began({5, 1}, std::string(1000, 'x'));
  EXPECT_EQ(ask({5, 1})[0].call, std::string(239, 'x'));
}

TEST_P(ThreeWorkers, OneThatHasEndedIsGone) {
  workers_[2]->began({5, 1}, "call");
  const auto addresses = workers_[1]->address();
  workers_[1].reset();
  const auto states = ask({5, 1});
  EXPECT_EQ(states[0].answer, Answer::kGone);
  EXPECT_EQ(states[1].answer, Answer::kAnswered);
}

TEST_P(ThreeWorkers, AnotherJobIsNotAnswered) {
  std::optional<Arrivals> stranger;
  stranger.emplace(0, kSecret + 1, GetParam());
  std::vector<std::string> addresses;
  for (auto& worker : workers_) addresses.push_back(worker->address());
  stranger->meet(addresses);
  const int others[] = {1};
  const auto states = stranger->ask(others, {}, std::chrono::milliseconds(300));
  EXPECT_EQ(states[0].answer, Answer::kSilent);
}

INSTANTIATE_TEST_SUITE_P(Reach, ThreeWorkers, testing::Values(Reach::kThisMachine, Reach::kNetwork),
                         [](const auto& info) {
                           return info.param == Reach::kNetwork ? "Network" : "ThisMachine";
                         });

WorkerState answered(int worker, bool arrived, bool waiting, std::string call) {
  return {worker, Answer::kAnswered, arrived, waiting, std::move(call), "last", 1.5};
}

TEST(Missing, EveryKindOfTroubleHasItsLine) {
  std::vector<WorkerState> states{
      answered(0, true, true, "mine"),        answered(1, false, false, ""),
      answered(2, true, true, "other"),       answered(3, true, false, "mine"),
      {4, Answer::kGone, {}, {}, {}, {}, {}}, {5, Answer::kSilent, {}, {}, {}, {}, {}}};
  const std::string text = missing_text(states, "mine");
  EXPECT_THAT(text, Not(HasSubstr("worker 0")));
  EXPECT_THAT(text, HasSubstr("worker 1 has not come to this call: the last it began, 1.5 seconds "
                              "ago, was last"));
  EXPECT_THAT(text, HasSubstr("worker 2 made another call here: other"));
  EXPECT_THAT(text, HasSubstr("worker 3 began this call and now does something else"));
  EXPECT_THAT(text, HasSubstr("worker 4 has ended"));
  EXPECT_THAT(text, HasSubstr("worker 5 does not answer"));
}

// A member that waits elsewhere may wait for one of another group.
TEST(Missing, TroubleOutsideOfTheGroupHasItsLineToo) {
  const std::vector members{answered(2, false, true, "")};
  const std::vector<WorkerState> outside{answered(1, false, true, ""),
                                         answered(3, false, false, ""),
                                         {4, Answer::kGone, {}, {}, {}, {}, {}},
                                         {5, Answer::kSilent, {}, {}, {}, {}, {}},
                                         {6, Answer::kSilent, {}, {}, {}, {}, {}}};
  const std::string text = missing_text(members, "mine", outside);
  EXPECT_THAT(text, HasSubstr("worker 2 has not come to this call"));
  EXPECT_THAT(text, Not(HasSubstr("worker 1")));
  EXPECT_THAT(text, HasSubstr("worker 3, not of this group, waits in no call"));
  EXPECT_THAT(text, HasSubstr("worker 4, not of this group, has ended"));
  EXPECT_THAT(text, HasSubstr("workers 5, 6, not of this group, do not answer"));
}

TEST(Missing, WorkersOfSeveralMachinesAreNamedWithTheirs) {
  std::vector<WorkerState> states{answered(0, false, true, ""),
                                  {1, Answer::kSilent, {}, {}, {}, {}, {}},
                                  {2, Answer::kSilent, {}, {}, {}, {}, {}}};
  for (WorkerState& state : states) state.machine = "node" + std::to_string(state.worker);
  const std::string text = missing_text(states, "mine");
  EXPECT_THAT(text, HasSubstr("worker 0 (on node0) has not come to this call"));
  EXPECT_THAT(text, HasSubstr("workers 1 (on node1), 2 (on node2) do not answer"));
}

TEST(Missing, ManyAreCounted) {
  std::vector<WorkerState> states;
  for (int i = 0; i < 100; ++i) states.push_back({i, Answer::kSilent, {}, {}, {}, {}, {}});
  EXPECT_THAT(missing_text(states, "mine"),
              HasSubstr("workers 0, 1, 2, 3, 4, 5, 6, 7 and 92 more do not answer"));
}

TEST(Missing, WhereAllAreThereTheNetworkIsNamed) {
  EXPECT_THAT(missing_text(std::vector{answered(0, true, true, "mine")}, "mine"),
              HasSubstr("network"));
}

}  // namespace
}  // namespace ballast::comm
