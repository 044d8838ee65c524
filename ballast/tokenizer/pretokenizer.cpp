// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/pretokenizer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "ballast/tokenizer/unicode_class_runs.h"
#include "ballast/tokenizer/utf8_character.h"

namespace ballast::tokenizer {
namespace {

constexpr uint32_t kCodePoints = 0x110000;
constexpr uint32_t kBlockBits = 8;
constexpr uint32_t kBlockSize = 1 << kBlockBits;

// Classes by code point in two stages: blocks of 256 that are alike (most are) are kept once.
class ClassTable {
 public:
  ClassTable() {
    std::vector<CharacterClass> flat(kCodePoints);
    for (size_t i = 0; i < std::size(kUnicodeClassRuns); ++i) {
      const bool last = i + 1 == std::size(kUnicodeClassRuns);
      const uint32_t stop = last ? kCodePoints : kUnicodeClassRuns[i + 1] >> 2;
      std::fill(flat.begin() + (kUnicodeClassRuns[i] >> 2), flat.begin() + stop,
                static_cast<CharacterClass>(kUnicodeClassRuns[i] & 3));
    }
    for (uint32_t block = 0; block < blocks_.size(); ++block) {
      const auto begin = flat.begin() + block * kBlockSize;
      const auto is_same = [&](uint16_t kept) {
        return std::equal(begin, begin + kBlockSize, classes_.begin() + kept * kBlockSize);
      };
      uint16_t kept = 0;
      const auto num_kept = static_cast<uint16_t>(classes_.size() / kBlockSize);
      while (kept < num_kept && !is_same(kept)) ++kept;
      if (kept == num_kept) classes_.insert(classes_.end(), begin, begin + kBlockSize);
      blocks_[block] = kept;
    }
  }

  CharacterClass operator[](uint32_t code_point) const {
    return classes_[blocks_[code_point >> kBlockBits] * kBlockSize + code_point % kBlockSize];
  }

 private:
  std::array<uint16_t, kCodePoints / kBlockSize> blocks_{};
  std::vector<CharacterClass> classes_;
};

const ClassTable& class_table() {
  static const ClassTable table;
  return table;
}

constexpr std::array<CharacterClass, 128> make_ascii_classes() {
  std::array<CharacterClass, 128> classes{};
  for (size_t i = 0; kUnicodeClassRuns[i] >> 2 < 128; ++i) {
    for (uint32_t c = kUnicodeClassRuns[i] >> 2; c < 128; ++c) {
      classes[c] = static_cast<CharacterClass>(kUnicodeClassRuns[i] & 3);
    }
  }
  return classes;
}
constexpr std::array<CharacterClass, 128> kAsciiClasses = make_ascii_classes();

struct Character {
  CharacterClass type;
  uint8_t size;  // in bytes
};

inline Character read_character(const char* p, const char* end) {
  const auto lead = static_cast<uint8_t>(*p);
  if (lead < 0x80) return {kAsciiClasses[lead], 1};
  const Utf8Character c = read_multibyte(p, end);
  if (c.code_point == kNoCodePoint) return {CharacterClass::kOther, 1};
  return {class_table()[c.code_point], static_cast<uint8_t>(c.size)};
}

// The end of the run of characters of class `type` that starts at p.
inline const char* run_end(const char* p, const char* end, CharacterClass type) {
  while (p < end) {
    const Character next = read_character(p, end);
    if (next.type != type) break;
    p += next.size;
  }
  return p;
}

// The size of a contraction ('s 'd 'm 't 'll 've 're) at p, or 0. REQUIRES: *p == '\''.
inline int contraction_size(const char* p, const char* end) {
  if (end - p < 2) return 0;
  const char first = p[1];
  if (first == 's' || first == 'd' || first == 'm' || first == 't') return 2;
  if (end - p < 3) return 0;
  const char second = p[2];
  const bool is_long = (first == 'l' && second == 'l') || (first == 'v' && second == 'e') ||
                       (first == 'r' && second == 'e');
  return is_long ? 3 : 0;
}

// White space keeps its last character for the word that follows, unless it is all there is.
const char* space_end(const char* begin, const char* end) {
  const char* last = begin;  // start of the last white space character
  const char* p = begin;
  while (p < end) {
    const Character next = read_character(p, end);
    if (next.type != CharacterClass::kSpace) return last == begin ? p : last;
    last = p;
    p += next.size;
  }
  return p;
}

}  // namespace

CharacterClass character_class(uint32_t code_point) { return class_table()[code_point]; }

const char* pretoken_end(const char* begin, const char* end) {
  if (*begin == '\'') {
    if (const int size = contraction_size(begin, end)) return begin + size;
  }
  const char* p = begin + (*begin == ' ' && begin + 1 < end);
  const Character first = read_character(p, end);
  if (first.type == CharacterClass::kSpace) return space_end(begin, end);
  return run_end(p + first.size, end, first.type);
}

}  // namespace ballast::tokenizer
