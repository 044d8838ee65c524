// SPDX-License-Identifier: Apache-2.0
#include "ballast/kernels/embedding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/kernels/twins.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

using test::Case;
using test::dtype_name;

class Embedding : public test::Twins {
 protected:
  // Adds rows to a sum that is not zero, and compares with the same in double.
  void expect_sums(const Tensor& indices, int64_t count, int64_t num_sums, int64_t width) const {
    const Tensor sum = random({num_sums, width}), rows = random({count, width});
    const Tensor of_row = indices.repeat({count / indices.size(0)}).cpu();
    const Tensor before = exact(sum), again = sum.clone();
    const Tensor want = before.index_add(0, of_row, exact(rows));
    const Tensor terms = before.abs().index_add(0, of_row, exact(rows).abs());
    add_rows_at_(sum, indices, rows);
    // Of n terms a CPU adds one after the other, a GPU 32 at a time; bf16 is rounded at the end.
    const bool is_wide = GetParam().dtype == at::kDouble;
    const double length = GetParam().device == at::kCPU ? count : 64 + count / 32;
    const double of_terms = length * (is_wide ? 0x1p-53 : 0x1p-24);
    const double of_result = GetParam().dtype == at::kBFloat16 ? 0x1p-8 : 0;
    const Tensor allowed = want.abs() * of_result + terms * of_terms;
    EXPECT_TRUE((exact(sum) - want).abs().le(allowed).all().item<bool>())
        << count << " rows of " << width << " to " << num_sums;
    const Tensor has_none = at::ones({num_sums}, at::kBool).index_fill(0, of_row, false);
    EXPECT_TRUE(at::equal(exact(sum).index({has_none}), before.index({has_none})));
    add_rows_at_(again, indices, rows);
    EXPECT_TRUE(at::equal(sum, again)) << "two runs differ";
  }
};

TEST_P(Embedding, RowsThatRepeatArePlacedAgainAndAgain) {
  for (const int64_t width : {1, 6, 64, 1000}) {
    const Parameter words{random({40, width}), {}}, places{random({9, width}), {}};
    const Tensor tokens = at::randint(40, {35}, longs()), positions = at::arange(2, 9, longs());
    const Tensor y = embed(tokens, positions, words, places, at::empty({0}));
    // One addition, rounded once: the same bits.
    EXPECT_TRUE(at::equal(y, words.value.index_select(0, tokens) +
                                 places.value.index_select(0, positions.repeat({5}))));
  }
  const Parameter table{random({4, 3}), {}};
  EXPECT_EQ(
      embed(at::empty({0}, longs()), at::empty({0}, longs()), table, table, at::empty({0})).sizes(),
      at::IntArrayRef({0, 3}));
}

TEST_P(Embedding, IndicesThatDoNotFitTheRowsAreRefused) {
  const Parameter table{random({9, 4}), random({9, 4})};
  const Tensor tokens = at::zeros({8}, longs());
  for (const int64_t count : {0, 3, 16}) {
    const Tensor positions = at::zeros({count}, longs());
    EXPECT_THROW(embed(tokens, positions, table, table, at::empty({0})), c10::Error) << count;
    EXPECT_THROW(add_rows_at_(table.gradient, positions, random({8, 4})), c10::Error) << count;
  }
}

// Runs of equal indices within chunks of 32 rows, at their borders and across them.
TEST_P(Embedding, RowsAreAddedToTheSumsOfTheirIndices) {
  for (const int64_t count : {1, 31, 32, 33, 64, 1000}) {
    for (const int64_t width : {1, 6, 8, 40, 264}) {
      expect_sums(at::randint(7, {count}, longs()), count, 9, width);
      expect_sums(at::zeros({count}, longs()), count, 1, width);
      expect_sums(at::randperm(count, longs()), count, count + 1, width);
    }
  }
  for (const int64_t length : {16, 31, 32, 33, 64, 100}) {
    const Tensor runs = at::arange(1200, longs()).floor_divide(length);
    expect_sums(runs, 1200, 80, 24);
    expect_sums(runs.index_select(0, at::randperm(1200, longs())), 1200, 80, 24);
  }
}

TEST_P(Embedding, IndicesOfARowOfTheBatchAreAddedUpOverTheBatch) {
  for (const int64_t width : {1, 6, 264}) {
    for (const int64_t repeats : {2, 3, 17})
      expect_sums(at::randperm(10, longs()).narrow(0, 0, 7), 7 * repeats, 10, width);
  }
}

TEST_P(Embedding, SumsOfATrainingStep) {
  if (GetParam().device == at::kCPU) return;  // nothing about sizes is different there
  // A twentieth of the tokens is one word; others are rare.
  Tensor tokens =
      at::rand({16384}, at::device(GetParam().device)).square_().mul_(50000).to(at::kLong);
  tokens.masked_fill_(at::rand({16384}, tokens.device()).lt(0.05), 262);
  expect_sums(tokens, 16384, 50304, 1024);
  expect_sums(at::arange(1024, longs()), 16384, 1024, 1024);
}

INSTANTIATE_TEST_SUITE_P(Cpu, Embedding,
                         ::testing::Values(Case{at::kCPU, at::kDouble}, Case{at::kCPU, at::kFloat}),
                         dtype_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Embedding,
                         ::testing::Values(Case{at::kCUDA, at::kDouble},
                                           Case{at::kCUDA, at::kFloat},
                                           Case{at::kCUDA, at::kBFloat16}),
                         dtype_name);

}  // namespace
}  // namespace ballast::kernels
