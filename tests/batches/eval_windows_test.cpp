// SPDX-License-Identifier: Apache-2.0
#include "ballast/batches/eval_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/tokens/prepare.h"
#include "tests/support/temporary_folder.h"

namespace ballast::batches {
namespace {

using testing::ElementsAre;

constexpr tokenizer::TokenId kEnd = 999;

std::shared_ptr<const tokens::TokenSource> counting(size_t count,
                                                    std::optional<tokenizer::TokenId> end_of_text) {
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return tokens::tokens_in_memory(
      std::move(ids), {.name = "counting", .format = "memory", .end_of_text = end_of_text});
}

TEST(EvalWindows, PredictsEveryTokenOnceWithItsLeftContext) {
  for (const auto end :
       {std::optional<tokenizer::TokenId>(kEnd), std::optional<tokenizer::TokenId>()}) {
    for (size_t size = end ? 1 : 2; size < 40; ++size) {
      for (int64_t context = 1; context < 12; ++context) {
        for (int64_t stride = 1; stride <= context; ++stride) {
          const EvalWindows windows(counting(size, end), context, stride);
          const Batch all = windows.at(0, windows.size());
          int64_t next = end ? 0 : 1;  // the token whose prediction is due
          for (int64_t row = 0; row < all.rows; ++row) {
            int64_t in_row = 0;
            for (int64_t i = 0; i < context; ++i) {
              const auto at = static_cast<size_t>(row * context + i);
              if (all.targets[at] == kIgnoredTarget) continue;
              ASSERT_EQ(all.targets[at], next++);
              ASSERT_EQ(all.inputs[at], all.targets[at] == 0 ? kEnd : all.targets[at] - 1);
              ASSERT_GE(i, row > 0 ? context - stride : 0);  // sees that much before it
              ++in_row;
            }
            ASSERT_GT(in_row, 0);
          }
          ASSERT_EQ(next, static_cast<int64_t>(size));
          ASSERT_EQ(windows.predictions(), size - (end ? 0 : 1));
        }
      }
    }
  }
}

TEST(EvalWindows, MasksOverlapAndFillsTheLastRow) {
  const EvalWindows windows(counting(7, std::nullopt), 4, 2);
  ASSERT_EQ(windows.size(), 2u);
  const Batch batch = windows.at(0, 2);
  EXPECT_THAT(batch.inputs, ElementsAre(0, 1, 2, 3, 2, 3, 4, 5));
  EXPECT_THAT(batch.targets, ElementsAre(1, 2, 3, 4, -100, -100, 5, 6));
  const EvalWindows longer(counting(8, std::nullopt), 4, 2);
  EXPECT_THAT(longer.at(2, 1).targets, ElementsAre(-100, -100, 7, -100));
  EXPECT_THAT(longer.at(2, 1).inputs, ElementsAre(4, 5, 6, 0));
}

TEST(EvalWindows, RowsDoNotDependOnHowTheyAreGrouped) {
  const EvalWindows windows(counting(100, kEnd), 8, 3);
  const Batch all = windows.at(0, windows.size());
  for (uint64_t i = 0; i < windows.size(); ++i) {
    const Batch one = windows.at(i, 1);
    EXPECT_TRUE(std::equal(one.inputs.begin(), one.inputs.end(),
                           all.inputs.begin() + static_cast<long>(i * 8)));
    EXPECT_TRUE(std::equal(one.targets.begin(), one.targets.end(),
                           all.targets.begin() + static_cast<long>(i * 8)));
  }
  const Batch some = windows.at(std::vector<uint64_t>{5, 2});
  EXPECT_EQ(some.rows, 2);
  EXPECT_TRUE(std::equal(some.inputs.begin(), some.inputs.begin() + 8, all.inputs.begin() + 40));
  EXPECT_TRUE(std::equal(some.targets.begin() + 8, some.targets.end(), all.targets.begin() + 16));
}

// "abc" of domain 0 and "de" of domain 1, with their ends: seven tokens.
std::shared_ptr<const tokens::TokenSource> two_domains(const test::TemporaryFolder& folder) {
  write_text_atomically(folder / "wiki.txt", "abc");
  write_text_atomically(folder / "code.txt", "de");
  tokens::prepare({.inputs = {folder / "wiki.txt", folder / "code.txt"},
                   .out = folder / "data",
                   .valid_fraction = 0});
  return tokens::open_token_source(folder / "data");
}

TEST(EvalWindows, TellsTheDomainsOfInputsAndTargets) {
  const test::TemporaryFolder folder;
  const auto source = two_domains(folder);
  ASSERT_THAT(source->domains(), ElementsAre("wiki", "code"));
  // end-of-text, a, b, c | c, end, d, e (its target is the last end) | nothing is left
  const Batch batch = EvalWindows(source, 4, 3).at(0, 2);
  EXPECT_THAT(batch.inputs, ElementsAre(256, 'a', 'b', 'c', 'c', 256, 'd', 'e'));
  EXPECT_THAT(batch.domains, ElementsAre(-1, 0, 0, 0, 0, 0, 1, 1));
  EXPECT_THAT(batch.target_domains, ElementsAre(0, 0, 0, 0, 0, 1, 1, 1));
  const EvalWindows padded(source, 5, 5);
  EXPECT_THAT(padded.at(1, 1).inputs, ElementsAre('d', 'e', 0, 0, 0));
  EXPECT_THAT(padded.at(1, 1).domains, ElementsAre(1, 1, -1, -1, -1));
  EXPECT_THAT(padded.at(1, 1).target_domains, ElementsAre(1, 1, -1, -1, -1));
  EXPECT_THAT(EvalWindows(source, 1, 1).at(0, 1).domains, ElementsAre(-1));
}

TEST(EvalWindows, LeavesDomainsEmptyWhereNoneAreKnown) {
  const Batch batch = EvalWindows(counting(7, kEnd), 4, 2).at(0, 2);
  EXPECT_TRUE(batch.domains.empty() && batch.target_domains.empty());
}

TEST(EvalWindows, DomainsAreThoseOfTheTokensForAnyStride) {
  const test::TemporaryFolder folder;
  const auto source = two_domains(folder);
  std::vector<int32_t> known(source->size());
  source->read_domains(0, known);
  for (int64_t context = 1; context < 10; ++context) {
    for (int64_t stride = 1; stride <= context; ++stride) {
      const EvalWindows windows(source, context, stride);
      const Batch all = windows.at(0, windows.size());
      for (int64_t row = 0; row < all.rows; ++row) {
        for (int64_t i = 0; i < context; ++i) {
          const int64_t token = row * stride + i - 1;  // the first is the end-of-text in front
          const bool is_read = token >= 0 && token + 1 < static_cast<int64_t>(known.size());
          const int32_t expected = is_read ? known[static_cast<size_t>(token)] : -1;
          const auto at = static_cast<size_t>(row * context + i);
          ASSERT_EQ(all.domains[at], expected)
              << context << " " << stride << " " << row << " " << i;
          if (all.targets[at] < 0) continue;
          ASSERT_EQ(all.target_domains[at], known[static_cast<size_t>(token + 1)]);
        }
      }
    }
  }
}

TEST(EvalWindows, RefusesWhatCannotBeDone) {
  EXPECT_THROW(EvalWindows(counting(5, kEnd), 4, 0), UserError);
  EXPECT_THROW(EvalWindows(counting(5, kEnd), 4, 5), UserError);
  EXPECT_THROW(EvalWindows(counting(5, kEnd), 0, 1), UserError);
  EXPECT_THROW(EvalWindows(counting(0, kEnd), 4, 4), UserError);
  EXPECT_THROW(EvalWindows(counting(1, std::nullopt), 4, 4), UserError);
  const EvalWindows windows(counting(5, kEnd), 4, 4);
  EXPECT_THROW(windows.at(1, 2), std::out_of_range);
  EXPECT_THROW(windows.at(std::vector<uint64_t>{0, 2}), std::out_of_range);
  EXPECT_THROW(windows.at(~uint64_t{0}, 2), std::out_of_range);
}

}  // namespace
}  // namespace ballast::batches
