// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "ballast/tokenizer/code_points.h"
#include "ballast/tokenizer/utf8_character.h"

namespace ballast::tokenizer {
namespace {

constexpr uint32_t kKnownEnd = 0x30000;   // no character above changes in any form
constexpr uint32_t kFirstUnquiet = 0xA0;  // nor one below

bool composes(UnicodeForm form) { return form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc; }

utf8proc_option_t options_of(UnicodeForm form) {
  int options = UTF8PROC_STABLE | (composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

// The full canonical decomposition.
std::vector<utf8proc_int32_t> decomposition_of(uint32_t code_point) {
  std::vector<utf8proc_int32_t> parts(8);
  int ignored = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts.data(),
                              static_cast<long>(parts.size()), UTF8PROC_DECOMPOSE, &ignored);
  parts.resize(static_cast<size_t>(std::max<utf8proc_ssize_t>(count, 0)));
  return parts;
}

bool is_hangul_syllable(uint32_t c) { return c >= 0xAC00 && c < 0xD7A4; }
bool is_vowel_or_trailing_jamo(uint32_t c) {
  return (c >= 0x1161 && c < 0x1176) || (c >= 0x11A8 && c < 0x11C3);
}

void append_normalized(UnicodeForm form, std::string_view segment, std::string& result) {
  utf8proc_uint8_t* bytes = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(segment.data()),
                   static_cast<utf8proc_ssize_t>(segment.size()), &bytes, options_of(form));
  if (size < 0) throw std::bad_alloc();  // the text is valid, and nothing else can fail
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(bytes, &std::free);
  result.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

bool is_quiet_alone(UnicodeForm form, uint32_t code_point) {
  const utf8proc_property_t* property =
      utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point));
  if (property->combining_class != 0) return false;
  if (composes(form) && is_hangul_syllable(code_point)) return true;
  if (composes(form) && is_vowel_or_trailing_jamo(code_point)) return false;
  int ignored = 0;
  utf8proc_int32_t first = 0;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), &first, 1,
                                             options_of(form), &ignored);
  if (count == 1 && static_cast<uint32_t>(first) == code_point) return true;
  std::string character, normalized;
  append_utf8(code_point, character);
  append_normalized(form, character, normalized);
  return normalized == character;
}

}  // namespace

std::vector<UnicodeNormalizer::Conduct> UnicodeNormalizer::make_table(UnicodeForm form) {
  std::vector<Conduct> table(kKnownEnd);
  for (uint32_t c = kFirstUnquiet; c < kKnownEnd; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    if (is_too_new_to_normalize(c)) {
      table[c] = Conduct::kBarrier;
    } else if (!is_quiet_alone(form, c)) {
      table[c] = Conduct::kActive;
    }
    // What others are composed of is drawn to what is before it.
    if (!composes(form) || is_hangul_syllable(c)) continue;
    const auto parts = decomposition_of(c);
    for (size_t i = 1; i < parts.size(); ++i) {
      const auto part = static_cast<uint32_t>(parts[i]);
      if (!is_too_new_to_normalize(part)) table[part] = Conduct::kActive;
    }
  }
  return table;
}

template <UnicodeForm form>
const std::vector<UnicodeNormalizer::Conduct>* UnicodeNormalizer::table() {
  static const std::vector<Conduct> kTable = make_table(form);
  return &kTable;
}

UnicodeNormalizer::UnicodeNormalizer(UnicodeForm form)
    : form_(form),
      table_(form == UnicodeForm::kNfc    ? table<UnicodeForm::kNfc>()
             : form == UnicodeForm::kNfd  ? table<UnicodeForm::kNfd>()
             : form == UnicodeForm::kNfkc ? table<UnicodeForm::kNfkc>()
                                          : table<UnicodeForm::kNfkd>()) {}

UnicodeNormalizer::Conduct UnicodeNormalizer::conduct(uint32_t code_point) const {
  if (code_point == kNoCodePoint) return Conduct::kBarrier;
  return code_point < kKnownEnd ? (*table_)[code_point] : Conduct::kQuiet;
}

bool UnicodeNormalizer::normalize(std::string_view text, std::string& result) const {
  result.clear();
  const char *const end = text.data() + text.size(), *copied = text.data();
  const char* quiet = nullptr;  // a quiet character right before p, or null
  for (const char* p = text.data(); p < end;) {
    const Utf8Character c = read_utf8(p, end);
    const Conduct now = c.code_point < kFirstUnquiet ? Conduct::kQuiet : conduct(c.code_point);
    if (now != Conduct::kActive) {
      quiet = now == Conduct::kQuiet ? p : nullptr;
      p += c.size;
      continue;
    }
    const char* const begin = quiet != nullptr ? quiet : p;
    while (p < end) {
      const Utf8Character next = read_utf8(p, end);
      if (conduct(next.code_point) != Conduct::kActive) break;
      p += next.size;
    }
    result.append(copied, begin);
    append_normalized(form_, {begin, p}, result);
    copied = p;
    quiet = nullptr;
  }
  if (copied == text.data()) return false;
  result.append(copied, end);
  return true;
}

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps) {
  for (const NormalizerStep& step : steps) {
    if (const auto* form = std::get_if<UnicodeForm>(&step)) {
      steps_.emplace_back(UnicodeNormalizer(*form));
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      steps_.emplace_back(*prepend);
    } else {
      steps_.emplace_back(std::get<Replace>(step));
    }
  }
}

std::string_view Normalizer::apply(std::string_view text, bool prepends, Scratch& scratch) const {
  size_t next = 0;  // the scratch that `text` is not in
  const auto use = [&] { text = scratch[std::exchange(next, 1 - next)]; };
  for (const auto& step : steps_) {
    std::string& result = scratch[next];
    if (const auto* unicode = std::get_if<UnicodeNormalizer>(&step)) {
      if (unicode->normalize(text, result)) use();
    } else if (const auto* prepend = std::get_if<Prepend>(&step)) {
      if (!prepends || text.empty()) continue;
      result = prepend->text;
      result += text;
      use();
    } else {
      result.clear();
      append_replaced(text, std::get<Replace>(step), result);
      use();
    }
  }
  return text;
}

void append_replaced(std::string_view text, const Replace& replace, std::string& result) {
  size_t begin = 0;
  for (size_t at; (at = text.find(replace.from, begin)) != std::string_view::npos;) {
    result += text.substr(begin, at - begin);
    result += replace.to;
    begin = at + replace.from.size();
  }
  result += text.substr(begin);
}

}  // namespace ballast::tokenizer
