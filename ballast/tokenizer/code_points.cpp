// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/code_points.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "ballast/tokenizer/unicode_differences.h"

namespace ballast::tokenizer {
namespace {

static_assert(kFirstStandIn == kStandInRuns[0].first);

// The run that holds the code point, or null.
template <typename Runs>
auto* find_run(const Runs& runs, uint32_t code_point) {
  auto* run = std::upper_bound(std::begin(runs), std::end(runs), code_point,
                               [](uint32_t c, auto& candidate) { return c < candidate.first; });
  return run == std::begin(runs) || code_point > (--run)->last ? nullptr : run;
}

// Letters in circles and squares, which have the category of other symbols.
constexpr CodePointRun kFramedLetters[] = {
    {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

}  // namespace

uint32_t stand_in_of(uint32_t code_point) {
  const auto* run = find_run(kStandInRuns, code_point);
  return run == nullptr ? code_point : run->stand_in;
}

bool is_word_character(uint32_t code_point) {
  if (code_point == 0x200C || code_point == 0x200D) return true;  // joiners
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(stand_in_of(code_point)))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return find_run(kFramedLetters, code_point) != nullptr;
  }
}

bool is_too_new_to_normalize(uint32_t code_point) {
  return find_run(kNotNormalized, code_point) != nullptr;
}

}  // namespace ballast::tokenizer
