// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ballast::inference {

// WikiText as lm-eval's task of that name takes it, so that numbers can be compared.

// The pages of a file: a line " = Title = " begins one. Lines " = = Section = = " do not.
std::vector<std::string> wikitext_pages(std::string_view text);

// The text as people write it: WikiText has spaces around punctuation and within brackets and
// quotes, " @-@ " for a hyphen within a word, and the like.
std::string wikitext_detokenized(std::string text);

}  // namespace ballast::inference
