// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ballast::config {

// nearest() of config.h: the candidate that differs from the word in the fewest letters (missing,
// additional, other, or two that changed places), and in no more than a third of them. Where the
// word has no dot, the last part of a dotted candidate is enough: "width" may mean "model.width".
// Dashes at the start do not count.

// For the end of a sentence: "; the nearest is [laptop]", with `form` "[{}]"; empty where none is
// near.
std::string nearest_is(const std::string& word, const std::vector<std::string>& candidates,
                       const std::string& form = "{}");

}  // namespace ballast::config
