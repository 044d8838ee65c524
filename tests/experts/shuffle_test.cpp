// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/shuffle.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::experts {
namespace {

using Rows = std::vector<int64_t>;

Rows rows_of(const TokenOrder& order) {
  const at::Tensor positions = at::arange(order.row_of_position.size(0));
  EXPECT_TRUE(at::equal(order.position_of_row.index_select(0, order.row_of_position), positions));
  const auto* rows = order.row_of_position.const_data_ptr<int64_t>();
  return Rows(rows, rows + positions.numel());
}

// What every worker holds after the exchange, if worker w had tokens w * T/W ... before: computed
// here for all workers, from their plans alone.
std::vector<Rows> shuffled(const TrainingRoute& route, int64_t tokens_of_group, int64_t workers) {
  const int64_t tokens_of_worker = route.groups / workers * tokens_of_group;
  std::vector<RowExchange> ways;
  for (int64_t rank = 0; rank < workers; ++rank) {
    const Shuffle mix = shuffle_of(route, 6,
                                   {.groups = route.groups,
                                    .tokens_of_group = tokens_of_group,
                                    .rank = rank,
                                    .workers = workers},
                                   {.step = route.step});
    EXPECT_EQ(mix.way.has_value(), workers > 1);
    if (!mix.way) return {rows_of(mix.order)};
    ways.push_back(*mix.way);
  }
  std::vector<Rows> result;
  for (size_t to = 0; to < ways.size(); ++to) {
    Rows arrivals;
    for (size_t from = 0; from < ways.size(); ++from) {
      EXPECT_EQ(ways[from].send[to], ways[to].receive[from]);
      int64_t slot = 0;
      for (size_t before = 0; before < to; ++before) slot += ways[from].send[before];
      for (int64_t i = 0; i < ways[from].send[to]; ++i) {
        arrivals.push_back(static_cast<int64_t>(from) * tokens_of_worker +
                           ways[from].row_of_slot[slot + i].item<int64_t>());
      }
    }
    Rows rows = arrivals;
    if (ways[to].arrival_of_place.defined()) {
      for (size_t place = 0; place < rows.size(); ++place) {
        const auto arrival = ways[to].arrival_of_place[static_cast<int64_t>(place)].item<int64_t>();
        rows[place] = arrivals.at(static_cast<size_t>(arrival));
        EXPECT_EQ(ways[to].place_of_arrival[arrival].item<int64_t>(), static_cast<int64_t>(place));
      }
    }
    result.push_back(rows);
  }
  return result;
}

Rows joined(const std::vector<Rows>& parts) {
  Rows all;
  for (const Rows& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

class ShuffleOf : public testing::TestWithParam<int64_t> {};  // tokens of a group
class ShuffleOfCuda : public ShuffleOf {};

TEST_P(ShuffleOf, IsAPermutationThatNoNumberOfWorkersChanges) {
  const TrainingRoute route{.groups = 8, .seed = 1, .step = 2, .micro_step = 3};
  const Rows by_one = joined(shuffled(route, GetParam(), 1));
  EXPECT_EQ(std::set<int64_t>(by_one.begin(), by_one.end()).size(),
            static_cast<size_t>(8 * GetParam()));
  for (const int64_t workers : {2, 4, 8}) {
    EXPECT_EQ(joined(shuffled(route, GetParam(), workers)), by_one) << workers << " workers";
  }
}

TEST_P(ShuffleOf, GivesEveryGroupAnEqualPartOfEveryGroup) {
  const TrainingRoute route{.groups = 8, .seed = 1, .step = 2, .micro_step = 3};
  const Rows rows = joined(shuffled(route, GetParam(), 1));
  for (int64_t to = 0; to < 8; ++to) {
    std::vector<int64_t> parts(8);
    for (int64_t i = 0; i < GetParam(); ++i)
      ++parts[static_cast<size_t>(rows[static_cast<size_t>(to * GetParam() + i)] / GetParam())];
    for (const int64_t part : parts) {
      EXPECT_GE(part, GetParam() / 8);
      EXPECT_LE(part, (GetParam() + 7) / 8);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokens, ShuffleOf, testing::Values(8, 64, 5, 13, 20, 1));

TEST(Shuffle, IsAnotherOneForEveryStepMicroStepLayerAndSeed) {
  const TrainingRoute route{.groups = 2, .seed = 1, .step = 2, .micro_step = 3};
  std::set<Rows> seen = {joined(shuffled(route, 64, 1))};
  TrainingRoute other = route;
  other.seed = 2;
  seen.insert(joined(shuffled(other, 64, 1)));
  other = route;
  other.step = 3;
  seen.insert(joined(shuffled(other, 64, 1)));
  other = route;
  other.micro_step = 2;
  seen.insert(joined(shuffled(other, 64, 1)));
  const Shuffle layer =
      shuffle_of(route, 7, {.groups = 2, .tokens_of_group = 64, .rank = 0, .workers = 1},
                 {.step = route.step});
  seen.insert(rows_of(layer.order));
  EXPECT_EQ(seen.size(), 5U);
}

void expect_same(const at::Tensor& got, const at::Tensor& expected, at::Device device) {
  ASSERT_EQ(got.defined(), expected.defined());
  if (!got.defined()) return;
  EXPECT_EQ(got.device(), device);
  EXPECT_TRUE(at::equal(got.cpu(), expected));
}

// The shuffles of a pass, on `device`, beside those of its layers one by one, on the CPU.
void expect_those_of_the_layers(int64_t tokens_of_group, at::Device device) {
  const TrainingRoute route{.groups = 8, .seed = 1, .step = 2, .micro_step = 3};
  for (const int64_t workers : {1, 2, 4, 8}) {
    for (int64_t rank = 0; rank < workers; ++rank) {
      const ShuffleShape shape{
          .groups = 8, .tokens_of_group = tokens_of_group, .rank = rank, .workers = workers};
      PassShuffles together({2, 6, 7});
      for (const int64_t layer : {6, 2, 7, 6}) {
        SCOPED_TRACE(testing::Message()
                     << "worker " << rank << " of " << workers << ", layer " << layer);
        const Shuffle expected = shuffle_of(route, layer, shape, {.step = route.step});
        const Shuffle got =
            together.of(route, layer, shape, {.step = route.step, .device = device});
        expect_same(got.order.row_of_position, expected.order.row_of_position, device);
        expect_same(got.order.position_of_row, expected.order.position_of_row, device);
        ASSERT_EQ(got.way.has_value(), workers > 1);
        if (!got.way) continue;
        EXPECT_EQ(got.way->send, expected.way->send);
        EXPECT_EQ(got.way->receive, expected.way->receive);
        expect_same(got.way->row_of_slot, expected.way->row_of_slot, device);
        expect_same(got.way->slot_of_row, expected.way->slot_of_row, device);
        expect_same(got.way->arrival_of_place, expected.way->arrival_of_place, device);
        expect_same(got.way->place_of_arrival, expected.way->place_of_arrival, device);
      }
      EXPECT_ANY_THROW(together.of(route, 3, shape, {.step = route.step, .device = device}));
    }
  }
}

TEST_P(ShuffleOf, OfAPassAreThoseOfItsLayers) { expect_those_of_the_layers(GetParam(), at::kCPU); }

TEST_P(ShuffleOfCuda, IsThatOfTheCpu) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_those_of_the_layers(GetParam(), at::Device(at::kCUDA, 0));
}

INSTANTIATE_TEST_SUITE_P(Tokens, ShuffleOfCuda, testing::Values(8, 64, 5, 13, 20, 1, 2048, 3001));

}  // namespace
}  // namespace ballast::experts
