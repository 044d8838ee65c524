// SPDX-License-Identifier: Apache-2.0
#include "ballast/batches/batch_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "ballast/system/error.h"
#include "tests/support/error_of.h"

namespace ballast::batches {
namespace {

using testing::HasSubstr;

// Tokens first, first + 1, ...: a row's content tells where it was read.
std::shared_ptr<const tokens::TokenSource> counting(int64_t count, int64_t first = 0,
                                                    std::optional<uint64_t> fingerprint = {}) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return tokens::tokens_in_memory(
      std::move(ids),
      {.name = "counting", .format = "memory", .tokenizer_fingerprint = fingerprint});
}

BatchShape shape(int64_t context, int64_t batch, int64_t micro_steps = 1, uint64_t seed = 1) {
  return {.context = context, .global_batch = batch, .micro_steps = micro_steps, .seed = seed};
}

TEST(BatchStream, RowsAreWindowsWithTargetsShiftedByOne) {
  const BatchStream stream({{counting(103), 1}}, shape(10, 4));
  for (uint64_t step = 0; step < 20; ++step) {
    const Batch batch = stream.at(step, 0, 0, 1);
    ASSERT_EQ(batch.rows, 4);
    ASSERT_EQ(batch.inputs.size(), 40u);
    for (size_t i = 0; i < 40; ++i) {
      EXPECT_EQ(batch.targets[i], (batch.inputs[i] + 1) % 103);  // the source is a ring
      if (i % 10 > 0) {
        EXPECT_EQ(batch.inputs[i], batch.targets[i - 1]);
      }
    }
  }
}

TEST(BatchStream, PredictsEachTokenOnceInAnEpochButForTheRemainder) {
  for (const int64_t size : {11, 20, 103, 1000}) {
    const BatchStream stream({{counting(size), 1}}, shape(10, 1));
    const uint64_t windows = stream.windows_per_epoch(0);
    ASSERT_EQ(windows, static_cast<uint64_t>(size) / 10);
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> targets;
      for (uint64_t i = 0; i < windows; ++i) {
        EXPECT_EQ(stream.window(epoch * windows + i).epoch, epoch);
        for (const int64_t id : stream.at(epoch * windows + i, 0, 0, 1).targets) {
          EXPECT_TRUE(targets.insert(id).second) << "token " << id << " twice in epoch " << epoch;
        }
      }
      EXPECT_EQ(targets.size(), windows * 10);
    }
  }
}

TEST(BatchStream, EpochsDifferInWindowsAndOrder) {
  const BatchStream stream({{counting(1003), 1}}, shape(10, 1));
  const uint64_t windows = stream.windows_per_epoch(0);
  std::map<uint64_t, std::vector<uint64_t>> starts;
  for (uint64_t row = 0; row < 3 * windows; ++row) {
    starts[row / windows].push_back(stream.window(row).first_token);
  }
  EXPECT_NE(starts[0], starts[1]);
  const std::set<uint64_t> first(starts[0].begin(), starts[0].end());
  const std::set<uint64_t> second(starts[1].begin(), starts[1].end());
  EXPECT_NE(first, second);  // another offset, not only another order
  EXPECT_FALSE(std::is_sorted(starts[0].begin(), starts[0].end()));
}

TEST(BatchStream, TheGlobalBatchIsTheSameForAnyWorld) {
  const BatchStream stream({{counting(500), 1}, {counting(300, 1000), 2}}, shape(8, 24, 2));
  for (uint64_t step = 0; step < 30; ++step) {
    for (int64_t micro = 0; micro < 2; ++micro) {
      const Batch whole = stream.at(step, micro, 0, 1);
      ASSERT_EQ(whole.rows, 12);
      for (const int64_t world : {2, 3, 4, 6, 12}) {
        std::vector<int64_t> inputs, targets;
        for (int64_t rank = 0; rank < world; ++rank) {
          const Batch part = stream.at(step, micro, rank, world);
          EXPECT_EQ(part.rows, 12 / world);
          inputs.insert(inputs.end(), part.inputs.begin(), part.inputs.end());
          targets.insert(targets.end(), part.targets.begin(), part.targets.end());
        }
        EXPECT_EQ(inputs, whole.inputs) << "world " << world;
        EXPECT_EQ(targets, whole.targets) << "world " << world;
      }
    }
  }
}

TEST(BatchStream, MicroStepsCutTheSameGlobalBatch) {
  const BatchStream one({{counting(500), 1}}, shape(8, 24, 1));
  const BatchStream four({{counting(500), 1}}, shape(8, 24, 4));
  for (uint64_t step = 0; step < 10; ++step) {
    std::vector<int64_t> inputs;
    for (int64_t micro = 0; micro < 4; ++micro) {
      const Batch part = four.at(step, micro, 0, 1);
      inputs.insert(inputs.end(), part.inputs.begin(), part.inputs.end());
    }
    EXPECT_EQ(inputs, one.at(step, 0, 0, 1).inputs);
  }
}

TEST(BatchStream, AStepDoesNotDependOnWhatWasReadBefore) {
  const auto make = [] {
    return BatchStream({{counting(500), 0.3}, {counting(300, 1000), 0.7}}, shape(8, 6));
  };
  const BatchStream forward = make();
  std::vector<std::vector<int64_t>> seen;
  for (uint64_t step = 0; step < 40; ++step) seen.push_back(forward.at(step, 0, 0, 1).inputs);
  for (uint64_t step = 40; step-- > 0;) {
    EXPECT_EQ(make().at(step, 0, 0, 1).inputs, seen[step]);
    EXPECT_EQ(forward.at(step, 0, 0, 1).inputs, seen[step]);
  }
}

TEST(BatchStream, DependsOnTheSeed) {
  const BatchStream one({{counting(500), 1}}, shape(8, 6, 1, 1));
  const BatchStream two({{counting(500), 1}}, shape(8, 6, 1, 2));
  EXPECT_NE(one.at(0, 0, 0, 1).inputs, two.at(0, 0, 0, 1).inputs);
}

TEST(BatchStream, MixesSourcesByWeightWithEpochsOfTheirOwn) {
  const BatchStream stream({{counting(100), 3}, {counting(5000, 100), 1}}, shape(10, 8));
  uint64_t rows[2] = {};
  for (uint64_t step = 0; step < 50; ++step) {
    const Batch batch = stream.at(step, 0, 0, 1);
    for (size_t row = 0; row < 8; ++row) ++rows[batch.inputs[row * 10] < 100 ? 0 : 1];
    EXPECT_EQ(rows[0], (step + 1) * 6);  // 8 rows are two periods of 3 : 1
  }
  EXPECT_EQ(rows[1], 100u);
  EXPECT_DOUBLE_EQ(stream.epochs(0, 50), 300 / 10.0);
  EXPECT_DOUBLE_EQ(stream.epochs(1, 50), 100 / 500.0);
}

TEST(BatchStream, RefusesWhatCannotBeDone) {
  const auto make = [](std::vector<WeightedSource> sources, BatchShape shape) {
    return test::error_of([&] { BatchStream(sources, shape); });
  };
  EXPECT_EQ(make({{counting(11), 1}}, shape(10, 1)), "no error");
  EXPECT_THAT(make({}, shape(10, 1)), HasSubstr("no data source"));
  EXPECT_THAT(make({{counting(10), 1}}, shape(10, 1)),
              HasSubstr("counting has 10 tokens, too few for a context of 10 (which takes 11)"));
  EXPECT_THAT(make({{counting(0), 1}}, shape(10, 1)), HasSubstr("has 0 tokens"));
  EXPECT_THAT(make({{counting(50), 0}}, shape(10, 1)), HasSubstr("weight 0"));
  EXPECT_THAT(make({{counting(50), -2}}, shape(10, 1)), HasSubstr("weight -2"));
  EXPECT_THAT(make({{counting(50), 1}}, shape(0, 1)), HasSubstr("context is 0"));
  EXPECT_THAT(make({{counting(50), 1}}, shape(10, 0)), HasSubstr("batch is 0"));
  EXPECT_THAT(make({{counting(50), 1}}, shape(10, 8, 3)),
              HasSubstr("8 rows cannot be divided into 3"));
  EXPECT_THAT(make({{counting(50), 1}}, shape(10, 8, 0)), HasSubstr("micro-steps"));
  EXPECT_THAT(make({{counting(50, 0, 1), 1}, {counting(50, 0, 2), 1}}, shape(10, 1)),
              HasSubstr("different tokenizers"));
}

TEST(BatchStream, RefusesWorldsThatDoNotDivideTheRows) {
  const BatchStream stream({{counting(50), 1}}, shape(10, 8, 2));
  EXPECT_THAT(test::error_of([&] { stream.at(0, 0, 0, 3); }),
              HasSubstr("3 workers cannot share the 4 rows of a micro-step"));
  EXPECT_THROW(stream.at(0, 2, 0, 1), std::invalid_argument);
  EXPECT_THROW(stream.at(0, 0, 1, 1), std::invalid_argument);
  EXPECT_THROW(stream.at(0, 0, 0, 0), std::invalid_argument);
}

}  // namespace
}  // namespace ballast::batches
