// SPDX-License-Identifier: Apache-2.0
#include "ballast/parameters/held_state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ballast/parameters/parameter_table.h"

namespace ballast::parameters {
namespace {

constexpr int64_t kUnit = HeldState::kUnit;

// The slow version: of every element, who keeps it.
std::vector<std::set<int64_t>> keepers(int64_t elements, const FlatRange& divided, int64_t workers,
                                       int64_t chunk) {
  std::vector<std::set<int64_t>> of(static_cast<size_t>(elements));
  for (int64_t rank = 0; rank < workers; ++rank) {
    const HeldState held(elements, {{divided, rank, workers}}, chunk);
    for (const FlatRange& range : held.within({0, elements}))
      for (int64_t i = range.begin; i < range.end; ++i) of[static_cast<size_t>(i)].insert(rank);
  }
  return of;
}

TEST(HeldState, EveryElementIsKeptByOneWorkerOrByAll) {
  const int64_t elements = 40 * kUnit;
  const FlatRange divided{3 * kUnit, 33 * kUnit};
  for (const int64_t workers : {1, 2, 3, 4, 7, 8, 31}) {
    for (const int64_t chunk : {int64_t{1}, 8 * kUnit, 1000 * kUnit}) {
      SCOPED_TRACE(std::to_string(workers) + " workers, chunk " + std::to_string(chunk));
      std::map<int64_t, int64_t> of_worker;
      int64_t of_all = 0;
      for (int64_t i = 0; const auto& who : keepers(elements, divided, workers, chunk)) {
        const bool inside = i >= divided.begin && i < divided.end;
        if (std::ssize(who) == workers) {
          of_all += inside ? 1 : 0;
        } else {
          ASSERT_EQ(who.size(), 1U) << i;
          EXPECT_TRUE(inside) << i;
          ++of_worker[*who.begin()];
        }
        ++i;
      }
      if (workers == 1) continue;
      EXPECT_LT(of_all, workers * kUnit) << "what is not divided is small";
      for (const auto& [worker, count] : of_worker)
        EXPECT_EQ(count, (divided.size() - of_all) / workers) << "parts are equal";
    }
  }
}

TEST(HeldState, ChunksAreCutFromTheEndAndAreNoLongerThanAsked) {
  const HeldState held(100 * kUnit, {{{10 * kUnit, 99 * kUnit}, 1, 4}}, 9 * kUnit);
  int64_t end = 99 * kUnit;
  for (auto chunk = held.chunks().rbegin(); chunk != held.chunks().rend(); ++chunk) {
    EXPECT_EQ(chunk->all.end, end);
    EXPECT_EQ(chunk->all.size(), 8 * kUnit);  // the longest of four equal parts within 9 units
    EXPECT_EQ(chunk->own.begin, chunk->all.begin + 2 * kUnit);
    EXPECT_EQ(chunk->own.size(), 2 * kUnit);
    end = chunk->all.begin;
  }
  EXPECT_EQ(end, 11 * kUnit);
}

TEST(HeldState, PlacesFollowEachOtherAndWhatAllKeepIsTheRestOfTheChunks) {
  const int64_t elements = 60 * kUnit;
  const HeldState held(elements, {{{kUnit, 20 * kUnit}, 0, 2}, {{25 * kUnit, 50 * kUnit}, 2, 3}},
                       6 * kUnit);
  int64_t place = 0;
  for (const FlatRange& range : held.within({0, elements})) {
    EXPECT_EQ(held.place(range), place);
    place += range.size();
  }
  EXPECT_EQ(held.size({0, elements}), place);
  const at::Tensor seen = at::zeros({elements}, at::kInt);
  for (const FlatRange& range : held.common({0, elements})) range.of(seen).add_(1);
  for (const HeldState::Chunk& chunk : held.chunks()) chunk.all.of(seen).add_(1);
  EXPECT_TRUE(seen.eq(1).all().item<bool>());
  const HeldState::Chunk& chunk = held.chunks().front();
  EXPECT_FALSE(held.place(chunk.all)) << "a part of it is elsewhere";
  EXPECT_FALSE(held.place({chunk.all.end - 1, chunk.all.end}));
}

// Two workers of one table.
TEST(HeldState, ATableKeepsThePartsOfItsState) {
  const auto make = [](ParameterTable& table, int64_t rank) {
    table.declare({.name = "shared", .shape = {5, 100}, .decay = true});
    table.declare({.name = "small", .shape = {3}});
    table.declare({.name = "expert", .shape = {100}, .owner = Owner::kExpert});
    table.allocate({.working = at::kBFloat16,
                    .average = true,
                    .divisions = {{Owner::kShared, Owner::kRouter, rank, 2}},
                    .chunk_bytes = 2 * 2 * kUnit});
  };
  ParameterTable tables[2];
  const at::Tensor values = at::arange(1, 501, at::kFloat).view({5, 100});
  at::Tensor sum = at::zeros({9 * kUnit});
  for (int64_t rank = 0; rank < 2; ++rank) {
    ParameterTable& table = tables[rank];
    make(table, rank);
    EXPECT_EQ(table.working().numel(), 11 * kUnit);
    EXPECT_EQ(table.gradient().numel(), 11 * kUnit);
    for (const at::Tensor& state :
         {table.master(), table.first_moment(), table.second_moment(), table.average()})
      EXPECT_EQ(state.numel(), (1 + 8 / 2 + 2) * kUnit);
    const Segment& segment = table.segment("shared");
    table.put_weights(segment, values);
    EXPECT_TRUE(at::equal(table.view(table.working(), segment), values.to(at::kBFloat16)));
    EXPECT_THROW(table.view(table.master(), segment), std::logic_error);
    EXPECT_EQ(table.view(table.master(), table.segment("expert")).numel(), 100);
    for (const FlatRange& range : table.held().within({0, 9 * kUnit}))
      range.of(sum).add_(table.part(table.master(), range));
  }
  const FlatRange rest{0, tables[0].held().chunks().front().all.begin};
  rest.of(sum).div_(2);
  EXPECT_TRUE(at::equal(sum.narrow(0, 0, 500), values.view({-1})));
}

}  // namespace
}  // namespace ballast::parameters
