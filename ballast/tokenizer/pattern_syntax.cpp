// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "ballast/tokenizer/split_pattern.h"

namespace ballast::tokenizer {
namespace {

constexpr size_t kLongestPattern = 10000;

// General categories, and their groups.
constexpr std::array<std::string_view, 37> kProperties = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cn", "Cs"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

class Checker {
 public:
  explicit Checker(std::string_view pattern) : pattern_(pattern) {}

  void check() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        set();
      } else if (c == '(') {
        open_group();
      } else if (c == ')') {
        if (ignores_case_.size() > 1) ignores_case_.pop_back();  // PCRE2 finds the one too many
        ++at_;
      } else if (c == '{') {
        repeat();
      } else if (c == '.' || c == '^' || c == '$') {
        refuse(1, "means other things in other programs");
      } else {
        literal();
        continue;
      }
      last_literal_ = '\0';
    }
  }

 private:
  [[noreturn]] void refuse(size_t size, std::string_view why) const {
    throw BadPattern(fmt::format("`{}` at {} {}", pattern_.substr(at_, size), at_, why));
  }
  bool follows(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse(1, "escapes nothing");
    const char c = pattern_[at_ + 1];
    if (c == 'p' || c == 'P') return property();
    const bool is_known = std::string_view("rntsSdD").find(c) != std::string_view::npos;
    const bool is_punctuation = c >= ' ' && c <= '~' && !is_letter(c) && !is_digit(c);
    if (!is_known && !is_punctuation) refuse(2, "is not supported");
    at_ += 2;
  }

  void property() {
    const size_t end = pattern_.find('}', at_);
    if (!pattern_.substr(at_ + 2).starts_with('{') || end == std::string_view::npos) {
      refuse(3, "names no category in braces");
    }
    const std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    if (std::find(kProperties.begin(), kProperties.end(), name) == kProperties.end()) {
      refuse(end + 1 - at_, "is no general category of Unicode, and others are not supported");
    }
    at_ = end + 1;
  }

  // [...]: nested sets, named ones and intersections are Oniguruma's alone.
  void set() {
    const size_t begin = at_;
    at_ += follows("[^") ? 2 : 1;
    if (follows("]")) refuse(1, "right after a set's start means other things in other programs");
    while (!follows("]")) {
      if (at_ >= pattern_.size()) {
        at_ = begin;
        refuse(1, "starts a set that does not end");
      }
      if (follows("[")) refuse(1, "within a set is not supported");
      if (follows("&&")) refuse(2, "within a set is not supported");
      if (follows("\\")) {
        escape();
      } else {
        check_case();
        ++at_;
      }
    }
    ++at_;
  }

  void open_group() {
    if (follows("(*")) refuse(2, "is not supported");
    bool ignores_case = ignores_case_.back();
    size_t size = 1;
    if (follows("(?")) {
      constexpr std::array<std::string_view, 7> kKinds = {"(?:",  "(?i:", "(?=", "(?!",
                                                          "(?<=", "(?<!", "(?>"};
      const auto kind = std::find_if(kKinds.begin(), kKinds.end(),
                                     [&](std::string_view start) { return follows(start); });
      if (kind == kKinds.end()) refuse(4, "is not supported");
      size = kind->size();
      ignores_case |= *kind == "(?i:";
    }
    ignores_case_.push_back(ignores_case);
    at_ += size;
  }

  // {2}, {2,}, {2,4}, and the latter two with ? after them; other signs after them differ.
  void repeat() {
    size_t end = at_ + 1, commas = 0;
    while (end < pattern_.size() && (is_digit(pattern_[end]) || pattern_[end] == ',')) {
      commas += pattern_[end++] == ',';
    }
    const bool is_count = end < pattern_.size() && pattern_[end] == '}' && commas <= 1 &&
                          end > at_ + 1 && is_digit(pattern_[at_ + 1]);
    if (!is_count) refuse(std::max<size_t>(2, end - at_), "is no count");
    const char next = end + 1 < pattern_.size() ? pattern_[end + 1] : '\0';
    if (next == '+' || (next == '?' && commas == 0)) {
      refuse(end + 2 - at_, "means other things in other programs");
    }
    at_ = end + 1;
  }

  void literal() {
    check_case();
    const char previous = last_literal_;
    last_literal_ = ignores_case_.back() ? lower(pattern_[at_]) : '\0';
    // Oniguruma takes ligatures, and the German sharp s, for these two letters.
    if (previous != '\0') {
      const std::string pair = {previous, last_literal_};
      for (const char* folded : {"ss", "ff", "fi", "fl", "st"}) {
        if (pair == folded) refuse(1, "after another letter in (?i: ) is not supported");
      }
    }
    ++at_;
  }

  void check_case() const {
    if (ignores_case_.back() && static_cast<unsigned char>(pattern_[at_]) >= 0x80) {
      refuse(1, "is no ASCII, which is not supported in (?i: )");
    }
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::vector<bool> ignores_case_ = {false};  // of the groups that are open
  char last_literal_ = '\0';                  // lower case, where case is ignored; or 0
};

}  // namespace

void check_pattern_syntax(std::string_view pattern) {
  if (pattern.empty()) throw BadPattern("it is empty");
  if (pattern.size() > kLongestPattern) {
    throw BadPattern(fmt::format("it has {} bytes, and at most {} are supported", pattern.size(),
                                 kLongestPattern));
  }
  Checker(pattern).check();
}

}  // namespace ballast::tokenizer
