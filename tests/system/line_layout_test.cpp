// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/line_layout.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

const std::vector<LinePart> kParts = {
    {"step 5/10", 9}, {"loss 1.5", 8}, {"lr 1e-3", 0}, {"norm 2", 0}, {"eta 4s", 7}};

TEST(LineLayout, ALineThatFitsIsWhole) {
  const std::string whole = "step 5/10 | loss 1.5 | lr 1e-3 | norm 2 | eta 4s";
  EXPECT_EQ(fit_line(kParts, kAnyColumns), whole);
  EXPECT_EQ(fit_line(kParts, whole.size()), whole);
}

TEST(LineLayout, TheLeastImportantPartsGoFirstAndOfEqualsTheLast) {
  EXPECT_EQ(fit_line(kParts, 47), "step 5/10 | loss 1.5 | lr 1e-3 | eta 4s");
  EXPECT_EQ(fit_line(kParts, 38), "step 5/10 | loss 1.5 | eta 4s");
  EXPECT_EQ(fit_line(kParts, 28), "step 5/10 | loss 1.5");
  EXPECT_EQ(fit_line(kParts, 9), "step 5/10");
  EXPECT_EQ(fit_line(kParts, 6), "step 5");
}

TEST(LineLayout, ItIsNeverLongerThanAsked) {
  const Bar bar{"train", 0.5, kParts};
  for (size_t columns = 1; columns < 100; ++columns) {
    EXPECT_LE(columns_of(fit_line(kParts, columns)), columns);
    EXPECT_LE(columns_of(fit_bar(bar, columns)), columns);
    EXPECT_LE(columns_of(fit_bar(Bar{"reading", {}, kParts}, columns)), columns);
  }
}

TEST(LineLayout, CharactersCountOnceAndAreNotCut) {
  EXPECT_EQ(columns_of("\u00e4\u20ac"), 2U);
  EXPECT_EQ(fit_line({{"\u00e4\u20ac\u00e4"}}, 2), "\u00e4\u20ac");
}

TEST(LineLayout, ABarBecomesShorterBeforePartsGo) {
  const Bar bar{"train", 0.5, {{"step 5/10", 1}, {"eta 4s", 2}}};
  EXPECT_EQ(fit_bar(bar, 80), "train [============            ]  50% | step 5/10 | eta 4s");
  EXPECT_EQ(fit_bar(bar, 57), "train [========        ]  50% | step 5/10 | eta 4s");
  EXPECT_EQ(fit_bar(bar, 45), "train [====    ]  50% | step 5/10 | eta 4s");
  EXPECT_EQ(fit_bar(bar, 40), "train [====    ]  50% | eta 4s");
  EXPECT_EQ(fit_bar(bar, 21), "train [====    ]  50%");
  EXPECT_EQ(fit_bar(bar, 20), "train  50% | eta 4s");
  EXPECT_EQ(fit_bar(bar, 3), "tra");
}

TEST(LineLayout, ColoursTakeNoRoom) {
  const Bar bar{"train", 1.0, {{"eta 4s", 2}}};
  EXPECT_EQ(fit_bar(bar, 30, {"<", ">"}), "train [<========>] 100% | eta 4s");
}

TEST(LineLayout, AFileGetsALineWithoutABar) {
  EXPECT_EQ(line_of({"train", 0.25, kParts}),
            "train  25% | step 5/10 | loss 1.5 | lr 1e-3 | norm 2 | eta 4s");
  EXPECT_EQ(line_of({"reading", {}, {{"3 MB"}}}), "reading | 3 MB");
}

}  // namespace
}  // namespace ballast
