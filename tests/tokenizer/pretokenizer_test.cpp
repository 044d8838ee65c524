// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ballast/system/random.h"

namespace ballast::tokenizer {
namespace {

using Pieces = std::vector<std::string>;

Pieces cut(std::string_view text) {
  Pieces pieces;
  const char* const end = text.data() + text.size();
  for (const char *begin = text.data(), *next; begin < end; begin = next) {
    next = pretoken_end(begin, end);
    pieces.emplace_back(begin, next);
  }
  return pieces;
}

struct Case {
  std::string text;
  Pieces pieces;
};

TEST(Pretokenizer, CutsAsTheGpt2PatternDoes) {
  const std::vector<Case> cases = {
      {"", {}},
      {"Hello world", {"Hello", " world"}},
      {"a1b2", {"a", "1", "b", "2"}},
      {"I'll they've we're it's I'd I'm can't",
       {"I", "'ll", " they", "'ve", " we", "'re", " it", "'s", " I", "'d", " I", "'m", " can",
        "'t"}},
      {"'S 'LL", {"'", "S", " '", "LL"}},  // contractions are lower case
      {"'lx 'vx '", {"'", "lx", " '", "vx", " '"}},
      {"'tis", {"'t", "is"}},
      {" 's", {" '", "s"}},  // the space takes the quote
      {"!'s", {"!'", "s"}},  // so does punctuation
      {"''s", {"''", "s"}},
      {"a  b", {"a", " ", " b"}},
      {"a   b", {"a", "  ", " b"}},
      {"a \n b", {"a", " \n", " b"}},
      {"a\n\nb", {"a", "\n", "\n", "b"}},
      {"a\r\nb", {"a", "\r", "\n", "b"}},
      {"a\t\tb", {"a", "\t", "\t", "b"}},
      {"a  ", {"a", "  "}},
      {" ", {" "}},
      {"  ", {"  "}},
      {"x \t\v\f\r\n", {"x", " \t\v\f\r\n"}},
      {"caf\u00e9 na\u00efve", {"caf\u00e9", " na\u00efve"}},
      {"e\u0301", {"e", "\u0301"}},              // a combining mark is no letter
      {"\u0663\u0664x", {"\u0663\u0664", "x"}},  // Arabic-Indic digits
      {"\u00bd\u2167", {"\u00bd\u2167"}},        // a half, Roman eight
      {"a\u00a0b", {"a", "\u00a0", "b"}},        // NBSP is white space, but not ' '
      {"a\u3000\u3000b", {"a", "\u3000", "\u3000", "b"}},
      {"a\u200bb", {"a", "\u200b", "b"}},  // zero width space is not white space
      {"\u6f22\u5b57\u3002", {"\u6f22\u5b57", "\u3002"}},
      {" \U0001F469\u200d\U0001F680!", {" \U0001F469\u200d\U0001F680!"}},  // emoji with a joiner
      {"\U00020000\U0001D7D8", {"\U00020000", "\U0001D7D8"}},  // plane 2 letter, plane 1 digit
  };
  for (const auto& [text, pieces] : cases) EXPECT_EQ(cut(text), pieces) << "text: " << text;
}

TEST(Pretokenizer, TakesEachInvalidByteForACharacterThatIsNeitherLetterNumberNorSpace) {
  const std::vector<Case> cases = {
      {"a\xff\xfe!b", {"a", "\xff\xfe!", "b"}},
      {" \x80 b", {" \x80", " b"}},
      {"\xc3", {"\xc3"}},                                // truncated at the end
      {"\xc3 a", {"\xc3", " a"}},                        // truncated by a space
      {"\xe4\xb8z", {"\xe4\xb8", "z"}},                  // truncated by a letter
      {"\xc0\xa0x", {"\xc0\xa0", "x"}},                  // an overlong space is no space
      {"\xed\xa0\x80x", {"\xed\xa0\x80", "x"}},          // a surrogate
      {"\xf4\x90\x80\x80x", {"\xf4\x90\x80\x80", "x"}},  // above U+10FFFF
      {"\xe0\x80\xa0x", {"\xe0\x80\xa0", "x"}},
      {"\xf0\x80\x80\xa0x", {"\xf0\x80\x80\xa0", "x"}},
      {"\xf8\x88\x80\x80\x80x", {"\xf8\x88\x80\x80\x80", "x"}},
  };
  for (const auto& [text, pieces] : cases) EXPECT_EQ(cut(text), pieces);
}

TEST(Pretokenizer, KnowsClassesOfEveryPlane) {
  EXPECT_EQ(character_class('a'), CharacterClass::kLetter);
  EXPECT_EQ(character_class('0'), CharacterClass::kNumber);
  EXPECT_EQ(character_class(' '), CharacterClass::kSpace);
  EXPECT_EQ(character_class(0x1C), CharacterClass::kOther);  // FS: white space only in Python
  EXPECT_EQ(character_class(0x85), CharacterClass::kSpace);
  EXPECT_EQ(character_class(0x180E), CharacterClass::kOther);    // no longer white space
  EXPECT_EQ(character_class(0x10D50), CharacterClass::kLetter);  // Garay, Unicode 16
  EXPECT_EQ(character_class(0x323AF), CharacterClass::kLetter);
  EXPECT_EQ(character_class(0xE0001), CharacterClass::kOther);
  EXPECT_EQ(character_class(0x10FFFF), CharacterClass::kOther);
}

// The pattern read literally, alternative by alternative, over characters a, 1, !, ', space,
// newline, and the letters of the contractions.
Pieces cut_by_the_book(const std::string& text) {
  const auto type = [&](size_t i) { return character_class(static_cast<uint8_t>(text[i])); };
  const auto run = [&](size_t i, CharacterClass wanted) {
    while (i < text.size() && type(i) == wanted) ++i;
    return i;
  };
  const auto match = [&](size_t at) -> size_t {
    for (const char* word : {"'s", "'d", "'m", "'t", "'ll", "'ve", "'re"}) {
      if (text.compare(at, std::string(word).size(), word) == 0)
        return at + std::string(word).size();
    }
    using enum CharacterClass;
    for (const CharacterClass wanted : {kLetter, kNumber, kOther}) {
      const size_t from = at + (text[at] == ' ');
      if (run(from, wanted) > from) return run(from, wanted);
      if (run(at, wanted) > at) return run(at, wanted);
    }
    const size_t stop = run(at, kSpace);
    for (size_t end = stop; end > at; --end) {  // \s+(?!\S), giving back one at a time
      if (end == text.size() || type(end) == kSpace) return end;
    }
    return stop;
  };
  Pieces pieces;
  for (size_t at = 0, end; at < text.size(); at = end) {
    end = match(at);
    pieces.push_back(text.substr(at, end - at));
  }
  return pieces;
}

TEST(Pretokenizer, EqualsThePatternReadLiterallyOnRandomText) {
  const std::string alphabet = "ab1!'  \n\tsdmtlver";
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomStream random(seed, "pretokenizer");
    std::string text(1 + random.below(30), ' ');
    for (char& c : text) c = alphabet[random.below(alphabet.size())];
    ASSERT_EQ(cut(text), cut_by_the_book(text)) << "text: '" << text << "'";
  }
}

TEST(Pretokenizer, CutsBetweenANonSpaceAndASpaceWhateverComesBefore) {
  // TextReader relies on it: a document cut there can be encoded in pieces.
  const std::string alphabet = "ab1!' \n\t\xc3\xa9\xff";
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    RandomStream random(seed, "pieces");
    std::string text(2 + random.below(30), ' ');
    for (char& c : text) c = alphabet[random.below(alphabet.size())];
    const Pieces whole = cut(text);
    for (size_t i = 1; i < text.size(); ++i) {
      const auto is_space = [&](char c) { return c == ' ' || c == '\n' || c == '\t'; };
      if (is_space(text[i - 1]) || !is_space(text[i])) continue;
      Pieces both = cut(std::string_view(text).substr(0, i));
      for (const std::string& piece : cut(std::string_view(text).substr(i))) both.push_back(piece);
      ASSERT_EQ(both, whole) << "text: '" << text << "' cut at " << i;
    }
  }
}

}  // namespace
}  // namespace ballast::tokenizer
