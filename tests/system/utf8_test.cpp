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

TEST(Printable, KeepsWhatATerminalMayBeGiven) {
  for (const std::string text : {"", "plain", "\u00e9 \u20ac \U0001F600", "a\tb\n", "back\\slash"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesWhatWouldCommandIt) {
  using namespace std::string_literals;
  EXPECT_EQ(printable("\x1b[2J\x07\r"), "\\x1b[2J\\x07\\x0d");
  EXPECT_EQ(printable("a\0b\x7f"s), "a\\x00b\\x7f");
  EXPECT_EQ(printable("\u009b31m"), "\\xc2\\x9b31m") << "C1: the same as ESC [";
  EXPECT_EQ(printable("\x9b\xff"), "\\x9b\\xff") << "no UTF-8";
}

TEST(ValidUtf8Stream, CharactersMayComeInPieces) {
  const std::string text = "\u00e9\u20ac\U0001F600.\xe2\x82.\xff\xe2\x82";
  ValidUtf8Stream stream;
  std::string out;
  for (const char byte : text) out += stream.add({&byte, 1});
  EXPECT_EQ(out + stream.rest(), replace_invalid_utf8(text));
  EXPECT_EQ(ValidUtf8Stream().add("a\xe2\x82"), "a");
}

TEST(PrintableStream, CharactersMayComeInPieces) {
  const std::string text = "\u00e9\u20ac\U0001F600\x1b\u009b.\xe2\x82";
  PrintableStream stream;
  std::string out;
  for (const char byte : text) out += stream.add({&byte, 1});
  EXPECT_EQ(out + stream.rest(), printable(text));
  EXPECT_EQ(PrintableStream().add("\xff\xfe"), "\\xff\\xfe") << "nothing to wait for";
}

}  // namespace
}  // namespace ballast
