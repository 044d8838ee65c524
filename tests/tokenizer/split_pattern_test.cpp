// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/split_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/system/random.h"
#include "ballast/tokenizer/pretokenizer.h"

namespace ballast::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt2 =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::vector<std::string> pieces(const SplitPattern& pattern, const std::string& text) {
  PatternScratch scratch;
  std::vector<std::string> result;
  pattern.split(scratch.subject_of(text), scratch, [&](size_t begin, size_t end) {
    result.push_back(text.substr(begin, end - begin));
  });
  return result;
}

TEST(SplitPattern, CutsAsLlama3Does) {
  const SplitPattern pattern(kLlama3);
  EXPECT_THAT(pieces(pattern, "I'LL pay 12345!\n\n  ok"),
              ElementsAre("I", "'LL", " pay", " ", "123", "45", "!\n\n", " ", " ok"));
  EXPECT_THAT(pieces(pattern, ""), ElementsAre());
}

TEST(SplitPattern, WhatIsBetweenMatchesIsAPieceToo) {
  EXPECT_THAT(pieces(SplitPattern(R"(\p{N}+)"), "ab12c3"), ElementsAre("ab", "12", "c", "3"));
}

TEST(SplitPattern, GivesThePreTokensThatAreWrittenByHand) {
  const SplitPattern pattern(kGpt2);
  RandomStream random(1, "text");
  const std::vector<std::string> parts = {
      "a",          "1",          " ",      "\n",         "'ll",       "!",
      "\u00e9",     "\u6f22",     "\xff",   "\xe4\xb8",   "\u3000",    "\u180e",
      "\U00010d40", "\U0001F600", "\u0301", "\U00031350", "\U00010d69"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 10; ++i) text += parts[random.below(parts.size())];
    std::vector<std::string> expected;
    const char* const end = text.data() + text.size();
    for (const char *begin = text.data(), *next; begin < end; begin = next) {
      next = pretoken_end(begin, end);
      expected.emplace_back(begin, next);
    }
    ASSERT_EQ(pieces(pattern, text), expected);
  }
}

TEST(SplitPattern, RefusesWhatOtherProgramsReadDifferently) {
  const auto refused = [](const std::string& pattern, const std::string& message) {
    EXPECT_THAT([&] { SplitPattern{pattern}; }, ThrowsMessage<BadPattern>(HasSubstr(message)))
        << pattern;
  };
  for (const char* construct :
       {"^",         "$",      ".",          "\\w",   "\\b",     "\\h",         "\\A",
        "\\1",       "\\K",    "\\R",        "\\X",   "\\v",     "\\C",         "\\Q",
        "(*ACCEPT)", "(?m:a)", "(?<name>a)", "(?#a)", "(?i)",    "[[:alpha:]]", "[a[b]]",
        "[a&&b]",    "[]a]",   "[^]a]",      "[a",    "a{,3}",   "a{2}?",       "a{2}+",
        "a{2,3}+",   "a{x}",   "\\p{Han}",   "\\pL",  "\\p{^L}", "\\p{L",       "a\\"}) {
    refused(std::string("x|") + construct, "at ");
  }
  refused("", "empty");
  refused("(?i:ss)", "(?i: )");
  refused("(?i:\u00e9)", "(?i: )");
  refused("a|b)", "parenthes");
  refused("(a", "parenthes");
  refused("a*", "nothing at all");
  refused("a|(?=b)", "nothing at all");
  refused(std::string(20000, 'a'), "at most");
  refused("(?<=a*)b", "lookbehind");
  refused("((((a{999}){999}){999}){999})", "at ");
  for (const char* fine : {"[$^.&]", "a{2,3}?", "(?>a+)b", "(?<!a)b", "[\\]\\[\\-]", "\\d+\\D"}) {
    EXPECT_NO_THROW(SplitPattern{fine}) << fine;
  }
}

TEST(SplitPattern, APatternThatTakesTooLongIsAnErrorOfTheUsers) {
  const SplitPattern hostile("(?:a+)+(?:a+)+(?:a+)+[bc]");
  EXPECT_THAT([&] { pieces(hostile, std::string(5000, 'a')); },
              ThrowsMessage<UserError>(HasSubstr("gives up on a text")));
}

TEST(SplitPattern, TakesRunsOfAnyLength) {
  const SplitPattern pattern(kLlama3);
  for (const char* unit : {"a", " ", "\n", "!", "\u6f22", "\u0301"}) {
    std::string text;
    while (text.size() < (3 << 20)) text += unit;
    EXPECT_THAT(pieces(pattern, text), testing::SizeIs(testing::Le(2U))) << unit;
  }
}

}  // namespace
}  // namespace ballast::tokenizer
