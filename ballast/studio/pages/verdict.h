// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "ballast/studio/pages/results.h"

namespace ballast::pages {

// Why the final perplexities of a panel cannot be set against each other, in words: they were
// measured on different text or tokens, or after trainings of different length. Empty: they can.
std::string why_not_comparable(const Comparison& comparison, const Panel& panel);

// The sentence that matters of a panel: which system has the lowest perplexity, by how much, with
// what being equal, and whether seeds alone could explain it; or why that cannot be told.
std::string verdict(const Comparison& comparison, const Panel& panel);

// Whether two means over seeds differ by more than chance would let them in one of twenty pairs
// (Student's t, one deviation for both). Unknown where no system has two seeds.
enum class Difference { kUnknown, kWithinNoise, kBeyondNoise };
Difference difference_of(const Spread& one, const Spread& other);

}  // namespace ballast::pages
