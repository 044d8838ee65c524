// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/corpus_words.h"

namespace ballast::text {

size_t say_a_adjective(Chooser& out) {
  static constexpr uint64_t kVowels = [] {
    uint64_t set = 0;
    for (size_t i = 0; i < kAdjectives.size(); ++i) {
      if (std::string_view("aeiou").find(kAdjectives[i][0]) != std::string_view::npos)
        set |= only(i);
    }
    return set;
  }();
  const bool vowel = out.chance(1, 5);
  out.write(vowel ? "an " : "a ");
  return out.say(kAdjectives, vowel ? ~kVowels : kVowels);
}

}  // namespace ballast::text
