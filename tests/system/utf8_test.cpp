// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/utf8.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

TEST(ReplaceInvalidUtf8, KeepsWhatIsValid) {
  for (const std::string text :
       {"", "plain", "\u00e9 \u20ac \U0001F600 \U0010FFFF \uD7FF", "a\tb\n"}) {
    EXPECT_EQ(replace_invalid_utf8(text), text);
  }
}

TEST(ReplaceInvalidUtf8, ReplacesEachByteThatIsNot) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a" + mark + "z");
  EXPECT_EQ(replace_invalid_utf8("\xC3"), mark) << "cut short";
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82z"), mark + mark + "z");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), mark + mark) << "overlong";
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\xAF"), mark + mark + mark) << "overlong";
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), mark + mark + mark) << "a surrogate";
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), mark + mark + mark + mark)
      << "beyond U+10FFFF";
  EXPECT_EQ(replace_invalid_utf8("\xFF\xFE"), mark + mark);
}

}  // namespace
}  // namespace ballast
