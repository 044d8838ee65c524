// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace ballast::tokenizer {

// Throws BadPattern where Oniguruma and PCRE2 would read the pattern differently, or where one of
// them might: names the construct and where it stands.
void check_pattern_syntax(std::string_view pattern);

}  // namespace ballast::tokenizer
