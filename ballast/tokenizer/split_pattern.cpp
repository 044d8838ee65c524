// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/split_pattern.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "ballast/system/error.h"
#include "ballast/tokenizer/code_points.h"
#include "ballast/tokenizer/pattern_syntax.h"
#include "ballast/tokenizer/utf8_character.h"

namespace ballast::tokenizer {
namespace {

constexpr size_t kJitStackStart = 32 << 10, kJitStackLimit = 64 << 20;
constexpr char kInvalidByte = '\x01';  // neither letter, number nor white space

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

const char* first_beyond_ascii(const char* p, const char* end) {
  for (; end - p >= 8; p += 8) {
    uint64_t block;
    std::memcpy(&block, p, 8);
    if (block & 0x8080808080808080) break;
  }
  while (p < end && static_cast<uint8_t>(*p) < 0x80) ++p;
  return p;
}

// Calls replace(offset, size, stand-in) for each character that needs one.
template <typename Replace>
void for_stand_ins(std::string_view text, const Replace& replace) {
  const char *p = text.data(), *const end = p + text.size();
  while ((p = first_beyond_ascii(p, end)) < end) {
    const Utf8Character c = read_multibyte(p, end);
    const auto at = static_cast<size_t>(p - text.data());
    p += c.size;
    if (c.code_point == kNoCodePoint) {
      replace(at, std::string_view(&kInvalidByte, 1));
    } else if (c.code_point >= kFirstStandIn) {
      const uint32_t stand_in = stand_in_of(c.code_point);
      if (stand_in == c.code_point) continue;
      std::string bytes;
      append_utf8(stand_in, bytes);
      replace(at, bytes);
    }
  }
}

}  // namespace

struct PatternScratch::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr);

  State() {
    if (data == nullptr || context == nullptr) throw std::bad_alloc();
    if (stack != nullptr) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

PatternScratch::PatternScratch() : state_(std::make_unique<State>()) {}
PatternScratch::~PatternScratch() = default;

std::string_view PatternScratch::subject_of(std::string_view text) {
  bool is_copied = false;
  for_stand_ins(text, [&](size_t at, std::string_view bytes) {
    if (!is_copied) subject_.assign(text);
    is_copied = true;
    std::copy(bytes.begin(), bytes.end(), subject_.begin() + static_cast<ptrdiff_t>(at));
  });
  return is_copied ? std::string_view(subject_) : text;
}

struct SplitPattern::Code {
  pcre2_code* code = nullptr;
  std::string pattern;

  Code() = default;
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

SplitPattern::SplitPattern(const std::string& pattern) : code_(std::make_unique<Code>()) {
  check_pattern_syntax(pattern);
  int error = 0;
  size_t offset = 0;
  code_->pattern = pattern;
  code_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code_->code == nullptr) {
    throw BadPattern(fmt::format("{} at {}", pcre2_message(error), offset));
  }
  uint32_t may_be_empty = 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_MATCHEMPTY, &may_be_empty);
  if (may_be_empty != 0) throw BadPattern("it may match nothing at all");
  // Where code may not be made at run time, PCRE2 interprets: slower, with the same matches.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;

SplitPattern::Match SplitPattern::find(std::string_view subject, size_t from,
                                       PatternScratch& scratch) const {
  const PatternScratch::State& state = *scratch.state_;
  const int result =
      pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), from,
                  PCRE2_NO_UTF_CHECK, state.data, state.context);
  if (result >= 0) {
    const size_t* const ends = pcre2_get_ovector_pointer(state.data);
    return {ends[0], ends[1]};
  }
  if (result == PCRE2_ERROR_NOMATCH) return {subject.size(), subject.size()};
  fail("the tokenizer's split pattern {} gives up on a text: {}", code_->pattern,
       pcre2_message(result));
}

}  // namespace ballast::tokenizer
