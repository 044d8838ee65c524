// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/balanced_slots.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/kernels/cuda_plugin.h"

namespace ballast::experts {
namespace {

using at::Tensor;

struct Shape {
  int64_t rounds, groups, tokens, experts;  // tokens: of a group
};

const std::vector<Shape> kShapes = {
    {1, 1, 1, 1}, {1, 2, 8, 4},    {1, 3, 7, 5},    {1, 2, 3, 8},    {2, 3, 21, 4},   {3, 2, 50, 6},
    {1, 1, 0, 3}, {1, 16, 257, 8}, {1, 5, 600, 33}, {2, 4, 300, 40}, {1, 2, 300, 128}};

// Balanced experts of each round, in a random order; each one's places by token.
AssignedRounds random_rounds(const Shape& shape) {
  const auto ints = at::TensorOptions(at::kInt);
  AssignedRounds rounds{
      .expert_of_token = at::empty({shape.rounds, shape.groups, shape.tokens}, ints),
      .place_of_token = at::empty({shape.rounds, shape.groups, shape.tokens}, ints),
      .loads = at::empty({shape.rounds, shape.groups, shape.experts}, ints)};
  for (int64_t k = 0; k < shape.rounds; ++k) {
    for (int64_t g = 0; g < shape.groups; ++g) {
      const Tensor expert =
          (at::randperm(shape.tokens, at::kLong) + 3 * k).remainder(shape.experts);
      const Tensor order = at::argsort(expert, /*stable=*/true, /*dim=*/0);
      rounds.expert_of_token[k][g].copy_(expert);
      rounds.place_of_token[k][g].copy_(
          at::empty_like(order).scatter_(0, order, at::arange(shape.tokens)));
      rounds.loads[k][g].copy_(at::bincount(expert, {}, shape.experts));
    }
  }
  return rounds;
}

// Block after block, what stands in it: round after round, each by token.
BalancedSlots plain_slots(const AssignedRounds& rounds, const Tensor& row_of_position) {
  const Tensor& expert = rounds.expert_of_token;
  const int64_t of_token = expert.size(0), groups = expert.size(1), tokens = expert.size(2);
  const int64_t experts = rounds.loads.size(2);
  const int64_t block = of_token * ((tokens + experts - 1) / experts);
  BalancedSlots slots{.slot_of_row = at::full({groups * tokens, of_token}, -7, at::kLong),
                      .row_of_slot = at::full({experts * groups * block}, -1, at::kLong),
                      .expert_of_row = at::full({groups * tokens, of_token}, -7, at::kLong)};
  for (int64_t e = 0; e < experts; ++e) {
    for (int64_t g = 0; g < groups; ++g) {
      int64_t slot = (e * groups + g) * block;
      for (int64_t k = 0; k < of_token; ++k) {
        const Tensor here = expert[k][g].eq(e).nonzero().view({-1});
        for (int64_t i = 0; i < here.size(0); ++i, ++slot) {
          Tensor row = here[i] + g * tokens;
          if (row_of_position.defined()) row = row_of_position[row.item<int64_t>()];
          slots.row_of_slot[slot].copy_(row);
          slots.slot_of_row[row.item<int64_t>()][k] = slot;
          slots.expert_of_row[row.item<int64_t>()][k] = e;
        }
      }
    }
  }
  return slots;
}

void expect_as_plain(at::Device device) {
  at::manual_seed(5);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.rounds << " rounds, " << shape.groups << " groups of "
                                    << shape.tokens << ", " << shape.experts << " experts");
    const AssignedRounds rounds = random_rounds(shape);
    const AssignedRounds there{.expert_of_token = rounds.expert_of_token.to(device),
                               .place_of_token = rounds.place_of_token.to(device),
                               .loads = rounds.loads.to(device)};
    for (const Tensor& rows : {Tensor(), at::randperm(shape.groups * shape.tokens, at::kLong)}) {
      const BalancedSlots expected = plain_slots(rounds, rows);
      const BalancedSlots got = balanced_slots(there, rows.defined() ? rows.to(device) : rows);
      EXPECT_TRUE(at::equal(got.slot_of_row.cpu(), expected.slot_of_row));
      EXPECT_TRUE(at::equal(got.row_of_slot.cpu(), expected.row_of_slot));
      EXPECT_TRUE(at::equal(got.expert_of_row.cpu(), expected.expert_of_row));
    }
  }
}

TEST(BalancedSlots, EqualTheirTwin) { expect_as_plain(at::kCPU); }

TEST(BalancedSlotsCuda, EqualTheirTwin) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  expect_as_plain(at::kCUDA);
}

TEST(BalancedSlots, RefuseWhatDoesNotFit) {
  const Tensor expert = at::tensor({0, 1}, at::kInt).view({1, 1, 2}),
               loads = at::ones({1, 1, 2}, at::kInt);
  const Tensor place = expert;  // each the only one of its expert
  EXPECT_NO_THROW(balanced_slots({expert, place, loads}, {}));
  EXPECT_THROW(balanced_slots({expert + 1, place, loads}, {}), c10::Error) << "no such expert";
  EXPECT_THROW(balanced_slots({expert, place, loads * 2}, {}), c10::Error) << "no such place";
  EXPECT_THROW(balanced_slots({expert.to(at::kLong), place, loads}, {}), c10::Error);
  EXPECT_THROW(balanced_slots({expert[0], place[0], loads[0]}, {}), c10::Error);
}

}  // namespace
}  // namespace ballast::experts
