// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "ballast/studio/pages/results.h"

namespace ballast::pages {

// Numbers as sentences and tables show them. What is not known is "-".

std::string perplexity_text(double perplexity);              // 23.41, 142.3
std::string spread_text(const Spread& spread);               // 23.41, or 23.41 ± 0.07 over seeds
std::string change_text(double value, double usual);         // "-4.9 %": of value against usual
std::string percent_text(double share);                      // 0.034: "3.4 %"
std::string count_text(double count);                        // "4.56M"
std::string time_text(double seconds);                       // "3m05s"
std::string plural(double count, const std::string& word);   // "1 layer", "2 layers"
std::string in_words(const std::vector<std::string>& list);  // "a, b and c"
// "the whole validation split, 60.0k tokens"; "64 of 812 windows spread over the validation split,
// 16.4k tokens"; of older runs, which do not tell how much there was, "17.0k tokens of it".
std::string measured_on(const record::LastValidation& validation);
// The same of all last validations of a comparison; empty: there are none.
std::string measured_in_words(const Comparison& comparison);
// "79 % to 81 %" of the least and the most as `text` writes them; one alone if they look the same.
std::string span_text(const std::vector<double>& values, std::string (*text)(double));

// Training time as an axis shows it.
struct TimeUnit {
  double seconds = 1;
  std::string name = "seconds";
};
TimeUnit time_unit(double longest_seconds);

}  // namespace ballast::pages
