// SPDX-License-Identifier: Apache-2.0
#include "ballast/parameters/slice.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace ballast::parameters {
namespace {

TEST(Slice, RowsAreDividedByTheCeilingAndTheLastMayBeSmaller) {
  const at::Tensor full = at::arange(14).view({7, 2});
  int64_t begin = 0;
  for (const int64_t size : {3, 3, 1}) {
    const Slice slice{.full_shape = {7, 2}, .shard = begin / 3, .shards = 3};
    EXPECT_EQ(slice.shape(), (std::vector<int64_t>{size, 2}));
    EXPECT_TRUE(at::equal(slice.take(full), full.narrow(0, begin, size)));
    begin += size;
  }
}

TEST(Slice, BlocksAreDividedEachByItself) {
  // Queries, keys and values of two heads of one row each.
  const at::Tensor full = at::arange(12).view({6, 2});
  const Slice second{.full_shape = {6, 2}, .blocks = {2, 2, 2}, .shard = 1, .shards = 2};
  EXPECT_TRUE(at::equal(second.take(full), at::tensor({2, 3, 6, 7, 10, 11}).view({3, 2})));
  // Four heads of queries that share two of keys and values.
  const Slice unequal{.full_shape = {8, 1}, .blocks = {4, 2, 2}, .shard = 1, .shards = 2};
  EXPECT_TRUE(
      at::equal(unequal.take(at::arange(8).view({8, 1})), at::tensor({2, 3, 5, 7}).view({4, 1})));
}

TEST(Slice, ColumnsAreDividedToo) {
  const at::Tensor full = at::arange(12).view({2, 6});
  const Slice second{.full_shape = {2, 6}, .dim = 1, .shard = 1, .shards = 2};
  EXPECT_TRUE(at::equal(second.take(full), at::tensor({3, 4, 5, 9, 10, 11}).view({2, 3})));
}

TEST(Slice, PartsPutTogetherAreTheWholeAndTheirIndicesAreTrue) {
  for (const auto& [dim, blocks, shards] :
       std::vector<std::tuple<int64_t, std::vector<int64_t>, int64_t>>{{0, {}, 1},
                                                                       {0, {}, 4},
                                                                       {0, {4, 4, 4}, 2},
                                                                       {0, {8, 2, 2}, 2},
                                                                       {1, {}, 3},
                                                                       {1, {4, 2}, 2},
                                                                       {2, {}, 2}}) {
    const std::vector<int64_t> shape = {12, 6, 5};
    const at::Tensor full = at::arange(360).view(shape), copy = at::zeros_like(full);
    for (int64_t shard = 0; shard < shards; ++shard) {
      const Slice slice{shape, dim, blocks, shard, shards};
      const at::Tensor part = slice.take(full);
      ASSERT_EQ(part.sizes(), at::IntArrayRef(slice.shape()));
      ASSERT_TRUE(part.is_contiguous());
      for (int64_t i = 0; i < part.numel(); ++i)
        ASSERT_EQ(slice.full_index(i), part.view({-1})[i].item<int64_t>());
      slice.put(part, copy);
    }
    EXPECT_TRUE(at::equal(copy, full)) << dim << " " << blocks.size() << " " << shards;
  }
}

}  // namespace
}  // namespace ballast::parameters
