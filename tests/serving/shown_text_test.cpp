// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/shown_text.h"

#include <gtest/gtest.h>

namespace ballast::serving {
namespace {

// What is shown of a text that comes byte by byte: all of it, and how it ended.
std::string shown(ShownText& text, const std::string& bytes) {
  std::string all;
  for (const char byte : bytes) all += text.add({&byte, 1});
  return all + text.rest();
}

TEST(ShownText, WithoutStopsEverythingAtOnce) {
  ShownText text({});
  EXPECT_EQ(text.add("one "), "one ");
  EXPECT_EQ(text.add("two"), "two");
  EXPECT_EQ(text.rest(), "");
  EXPECT_EQ(text.released(), 7);
}

TEST(ShownText, IsCutBeforeAStopThatSpansPieces) {
  ShownText text({"\n\nEnd", "###"});
  EXPECT_EQ(text.add("a\n"), "a");
  EXPECT_EQ(text.add("\nE"), "");
  EXPECT_EQ(text.add("nd and more"), "");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.add("later"), "");
  EXPECT_EQ(text.rest(), "");
  EXPECT_EQ(text.released(), 1);
}

TEST(ShownText, WhatOnlyBeganLikeAStopIsShown) {
  ShownText text({"aab"});
  EXPECT_EQ(text.add("aa"), "");
  EXPECT_EQ(text.add("a"), "a");  // the last two may still begin it
  EXPECT_EQ(text.add("c"), "aac");
  EXPECT_EQ(text.add("xa"), "x");
  EXPECT_EQ(text.rest(), "a");
  EXPECT_FALSE(text.stopped());
}

TEST(ShownText, TheEarliestStopCounts) {
  ShownText text({"three", "two"});
  EXPECT_EQ(text.add("one two three"), "one ");
}

TEST(ShownText, CharactersComeWhole) {
  ShownText text({});
  EXPECT_EQ(text.add("\xE2\x82"), "");
  EXPECT_EQ(text.add("\xAC!"), "€!");
  EXPECT_EQ(text.add("\xF0\x9F"), "");
  EXPECT_EQ(text.rest(), "\uFFFD\uFFFD");
  ShownText invalid({});
  EXPECT_EQ(shown(invalid, "a\xFF€\xE2"), "a\uFFFD€\uFFFD");
}

TEST(ShownText, AStopMayHoldWideCharacters) {
  ShownText text({"€"});
  EXPECT_EQ(shown(text, "5 €"), "5 ");
  EXPECT_TRUE(text.stopped());
  ShownText other({"€"});  // has the first two bytes of another character
  EXPECT_EQ(shown(other, "5 \xE2\x82\xAB"), "5 \xE2\x82\xAB");
}

}  // namespace
}  // namespace ballast::serving
