// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "ballast/system/progress.h"

namespace ballast::pages {

std::string perplexity_text(double perplexity) {
  if (!std::isfinite(perplexity)) return "-";
  return fmt::format("{:.{}f}", perplexity, perplexity < 100 ? 2 : 1);
}

std::string spread_text(const Spread& spread) {
  if (spread.count < 2) return perplexity_text(spread.mean);
  return fmt::format("{} ± {:.2f}", perplexity_text(spread.mean), spread.deviation);
}

std::string change_text(double value, double usual) {
  const double change = 100 * (value / usual - 1);
  return std::isfinite(change) ? fmt::format("{:+.1f} %", change) : "-";
}

std::string percent_text(double share) {
  if (!std::isfinite(share)) return "-";
  return fmt::format("{:.{}f} %", 100 * share, share < 0.1 ? 1 : 0);
}

std::string count_text(double count) { return std::isfinite(count) ? format_count(count) : "-"; }

std::string time_text(double seconds) {
  return std::isfinite(seconds) ? format_duration(seconds) : "-";
}

std::string plural(double count, const std::string& word) {
  return fmt::format("{:.0f} {}{}", count, word, count == 1 ? "" : "s");
}

std::string in_words(const std::vector<std::string>& list) {
  if (list.size() < 2) return list.empty() ? "" : list.front();
  return fmt::format("{} and {}", fmt::join(list.begin(), list.end() - 1, ", "), list.back());
}

std::string measured_on(const record::LastValidation& validation) {
  const std::string tokens = count_text(validation.tokens) + " tokens";
  if (!std::isfinite(validation.tokens)) return "text of unknown length";
  if (validation.whole_split) return "the whole validation split, " + tokens;
  if (validation.windows > 0 && validation.split_windows > 0)
    return fmt::format("{:.0f} of {:.0f} windows spread over the validation split, {}",
                       validation.windows, validation.split_windows, tokens);
  return tokens + " of the validation split";
}

std::string measured_in_words(const Comparison& comparison) {
  std::vector<std::string> distinct;
  for (const System& system : comparison.systems) {
    for (const RunRecord& run : system.runs) {
      if (!run.validation) continue;
      const std::string words = measured_on(*run.validation);
      if (std::ranges::find(distinct, words) == distinct.end()) distinct.push_back(words);
    }
  }
  return fmt::format("{}", fmt::join(distinct, "; or on "));
}

std::string span_text(const std::vector<double>& values, std::string (*text)(double)) {
  std::vector<double> known = values;
  std::erase_if(known, [](double value) { return !std::isfinite(value); });
  if (known.empty()) return text(record::kUnknown);
  const auto [least, most] = std::ranges::minmax_element(known);
  return text(*least) == text(*most) ? text(*least)
                                     : fmt::format("{} to {}", text(*least), text(*most));
}

TimeUnit time_unit(double longest_seconds) {
  if (longest_seconds > 3 * 3600) return {3600, "hours"};
  if (longest_seconds > 180) return {60, "minutes"};
  return {1, "seconds"};
}

}  // namespace ballast::pages
