// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::experts {
namespace {

void expect_counted(const at::Tensor& expert, int64_t experts) {
  const auto [rank, loads] = expert_ranks(expert, experts);
  const at::Tensor host = expert.cpu(), ranks = rank.cpu(), counted = loads.cpu();
  for (int64_t group = 0; group < host.size(0); ++group) {
    std::vector<int64_t> seen(static_cast<size_t>(experts) + 1);
    for (int64_t i = 0; i < host.size(1); ++i) {
      const auto e = static_cast<size_t>(host[group][i].item<int64_t>());
      EXPECT_EQ(ranks[group][i].item<int64_t>(), seen[e]++) << "choice " << i;
    }
    for (int64_t e = 0; e < experts; ++e)
      EXPECT_EQ(counted[group][e].item<int64_t>(), seen[static_cast<size_t>(e)]);
  }
}

void expect_all_cases_counted(at::Device device) {
  at::manual_seed(3);
  expect_counted(at::randint(0, 4, {3, 17}, at::kLong).to(device), 3);  // 3: none
  expect_counted(at::randint(0, 40, {2, 300}, at::kLong).to(device), 40);
  expect_counted(at::randint(0, 6, {3, 1500}, at::kLong).to(device), 5);
  expect_counted(at::zeros({2, 9}, at::kLong).to(device), 5);
  expect_counted(at::full({1, 9}, 5, at::kLong).to(device), 5);
  expect_counted(at::zeros({2, 0}, at::kLong).to(device), 5);
}

TEST(ExpertRanks, CountThoseBefore) { expect_all_cases_counted(at::kCPU); }

TEST(ExpertRanksCuda, CountThoseBefore) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_all_cases_counted(at::kCUDA);
}

// Choice after choice, first ones before second ones, into the blocks of its group.
void expect_slots(const at::Tensor& expert, const BlockShape& shape, at::Device device) {
  SCOPED_TRACE(testing::Message() << expert.sizes() << ", " << shape.groups << " groups, block "
                                  << shape.block);
  const int64_t tokens = expert.size(0) / shape.groups;
  at::Tensor slot_of_row = at::full_like(expert, -1),
             row_of_slot = at::full({shape.experts * shape.groups * shape.block}, -1, at::kLong);
  for (int64_t group = 0; group < shape.groups; ++group) {
    std::vector<int64_t> load(static_cast<size_t>(shape.experts));
    for (int64_t k = 0; k < expert.size(1); ++k) {
      for (int64_t row = group * tokens; row < (group + 1) * tokens; ++row) {
        const auto e = expert[row][k].item<int64_t>();
        if (e == shape.experts || load[static_cast<size_t>(e)] == shape.block) continue;
        const int64_t slot =
            (e * shape.groups + group) * shape.block + load[static_cast<size_t>(e)]++;
        slot_of_row[row][k] = slot;
        row_of_slot[slot] = row;
      }
    }
  }
  const BlockSlots got = block_slots(expert.to(device), shape);
  EXPECT_TRUE(at::equal(got.slot_of_row.cpu(), slot_of_row));
  EXPECT_TRUE(at::equal(got.row_of_slot.cpu(), row_of_slot));
}

void expect_all_slots(at::Device device) {
  at::manual_seed(4);
  const auto choices = [](int64_t tokens, int64_t of_token, int64_t kinds) {
    return at::randint(0, kinds, {tokens, of_token}, at::kLong);
  };
  expect_slots(choices(18, 2, 5), {.experts = 4, .groups = 2, .block = 2}, device);  // 4: none
  expect_slots(choices(18, 2, 5), {.experts = 4, .groups = 3, .block = 6}, device);
  expect_slots(choices(600, 1, 8), {.experts = 8, .groups = 2, .block = 38}, device);
  expect_slots(choices(1200, 2, 40), {.experts = 40, .groups = 3, .block = 25}, device);
  expect_slots(choices(700, 1, 3), {.experts = 3, .groups = 1, .block = 1}, device);
  expect_slots(at::full({5, 2}, 3, at::kLong), {.experts = 3, .groups = 1, .block = 2}, device);
  expect_slots(at::zeros({0, 1}, at::kLong), {.experts = 3, .groups = 2, .block = 2}, device);
}

TEST(BlockSlots, FillUpInOrder) { expect_all_slots(at::kCPU); }

TEST(BlockSlotsCuda, FillUpInOrder) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_all_slots(at::kCUDA);
}

TEST(BlockSlots, RefuseWhatDoesNotFit) {
  const BlockShape shape{.experts = 5, .groups = 2, .block = 3};
  EXPECT_NO_THROW(block_slots(at::full({4, 1}, 5, at::kLong), shape));
  EXPECT_THROW(block_slots(at::full({4, 1}, 6, at::kLong), shape), c10::Error);
  EXPECT_THROW(block_slots(at::full({4, 1}, -1, at::kLong), shape), c10::Error);
  EXPECT_THROW(block_slots(at::zeros({3, 1}, at::kLong), shape), c10::Error);
  EXPECT_THROW(block_slots(at::zeros({4}, at::kLong), shape), c10::Error);
}

TEST(ExpertRanks, RefuseAnExpertThatIsNotThere) {
  EXPECT_THROW(expert_ranks(at::full({1, 1}, 6, at::kLong), 5), c10::Error);
  EXPECT_THROW(expert_ranks(at::full({1, 1}, -1, at::kLong), 5), c10::Error);
  EXPECT_THROW(expert_ranks(at::zeros({4}, at::kLong), 5), c10::Error);
}

}  // namespace
}  // namespace ballast::experts
