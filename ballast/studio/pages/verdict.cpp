// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/pages/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "ballast/studio/pages/words.h"
#include "ballast/system/file.h"

namespace ballast::pages {
namespace {

// Up to these, amounts count as equal. Times of one budget are never so to the second.
constexpr double kEqualTokens = 0.005, kEqualCompute = 0.02, kEqualTime = 0.05;
constexpr double kPlannedTime = 0.25;  // what was planned as equal may come out so

// Systems of a panel that came to their end and were validated.
std::vector<const System*> finished_systems(const Comparison& comparison, const Panel& panel) {
  std::vector<const System*> systems;
  for (const size_t i : panel.systems) {
    if (std::isfinite(final_perplexity(comparison.systems[i])))
      systems.push_back(&comparison.systems[i]);
  }
  return systems;
}

const RunRecord& finished_run(const System& system) {
  const auto run = std::ranges::find_if(
      system.runs, [](const RunRecord& one) { return one.is_finished() && one.validation; });
  return run == system.runs.end() ? system.runs.front() : *run;
}

bool differ(double one, double other) {
  return std::isfinite(one) && std::isfinite(other) && one != other;
}

// What a run was validated on, by its config: names of files and folders, whose paths may differ.
std::string validation_data(const config::DataConfig& data) {
  std::string words;
  for (const std::string& path : data.valid.empty() ? data.train : data.valid) {
    const std::string name = fs::path(path).filename().string();
    words += (words.empty() ? "" : ", ") + (name.empty() ? path : name);
    if (path.starts_with("builtin"))
      words += fmt::format(" ({} bytes, seed {})", data.builtin_bytes, data.builtin_seed);
  }
  return words;
}

// What tells the validations of two systems apart; empty: nothing that is known.
std::string difference_in_validation(const System& one, const System& other) {
  const RunRecord &first = finished_run(one), &second = finished_run(other);
  if (first.config && second.config) {
    const int64_t here = first.config->model.vocabulary, there = second.config->model.vocabulary;
    if (here > 0 && there > 0 && here != there)
      return fmt::format("{} has a vocabulary of {} tokens, {} one of {}", one.name, here,
                         other.name, there);
    const std::string data = validation_data(first.config->data),
                      others = validation_data(second.config->data);
    if (data != others)
      return fmt::format("{} was validated on data {}, {} on {}", one.name, data, other.name,
                         others);
  }
  if (!first.validation || !second.validation) return "";
  if (differ(first.validation->tokens, second.validation->tokens))
    return fmt::format("{} was validated on {}, {} on {}", one.name, measured_on(*first.validation),
                       other.name, measured_on(*second.validation));
  if (differ(first.validation->floor, second.validation->floor))
    return fmt::format("{} and {} were validated on text of different entropy", one.name,
                       other.name);
  return "";
}

// Amounts of each system; known where all are.
struct Amounts {
  std::vector<double> values = {};

  bool are_equal(double tolerance) const {
    if (values.empty() || std::ranges::any_of(values, [](double x) { return !(x > 0); }))
      return false;
    const auto [least, most] = std::ranges::minmax_element(values);
    return *most <= (1 + tolerance) * *least;
  }
};

template <typename Get>
Amounts amounts_of(const std::vector<const System*>& systems, Get get) {
  Amounts amounts;
  for (const System* system : systems) amounts.values.push_back(get(*system));
  return amounts;
}

struct Lengths {
  Amounts tokens, seconds, compute;
};

Lengths lengths_of(const std::vector<const System*>& systems) {
  return {amounts_of(systems, [](const System& one) { return result_of(one).tokens; }),
          amounts_of(systems, [](const System& one) { return result_of(one).seconds; }),
          amounts_of(systems, [](const System& one) {
            return result_of(one).tokens * one.flops_per_token;
          })};
}

// "in equal training time (33s) and after 2.05M tokens each"; empty: nothing is equal.
std::string equal_in_words(const Lengths& lengths, const Panel& panel) {
  std::vector<std::string> words;
  if (std::isfinite(panel.seconds) && lengths.seconds.are_equal(kPlannedTime))
    words.push_back(fmt::format("in equal training time ({})", time_text(panel.seconds)));
  else if (lengths.seconds.are_equal(kEqualTime))
    words.push_back(
        fmt::format("in equal training time ({})", span_text(lengths.seconds.values, time_text)));
  if (lengths.tokens.are_equal(kEqualTokens))
    words.push_back(
        fmt::format("after {} tokens each", span_text(lengths.tokens.values, count_text)));
  if (lengths.compute.are_equal(kEqualCompute))
    words.push_back(fmt::format("with equal compute ({} FLOPs)",
                                span_text(lengths.compute.values, count_text)));
  return in_words(words);
}

// What differs along with what is equal: trained on as many tokens, they need not take as long.
std::string unequal_in_words(const Lengths& lengths, const Panel& panel) {
  if (lengths.seconds.are_equal(std::isfinite(panel.seconds) ? kPlannedTime : kEqualTime))
    return "";
  const std::string times = span_text(lengths.seconds.values, time_text);
  return times == "-" ? "" : fmt::format("; their training took {}", times);
}

std::string noise_in_words(const System& one, const System& other) {
  const Spread first = result_of(one).best(), second = result_of(other).best();
  const auto seeds = [](const Spread& spread) {
    return plural(static_cast<double>(spread.count), "seed");
  };
  switch (difference_of(first, second)) {
    case Difference::kUnknown:
      return "One seed each: how much of it is chance is not known";
    case Difference::kWithinNoise:
      return fmt::format("That is within the noise between seeds ({} and {}): it may be chance",
                         seeds(first), seeds(second));
    case Difference::kBeyondNoise:
      break;
  }
  return fmt::format("That is beyond the noise between seeds ({} and {})", seeds(first),
                     seeds(second));
}

// With whom the lowest is compared: the reference, or the next where it is that itself.
const System* rival_of(const Comparison& comparison, const Panel& panel, const System& best) {
  const System* const reference = reference_of(comparison, panel);
  if (reference != nullptr && reference != &best && std::isfinite(final_perplexity(*reference)))
    return reference;
  return lowest_of(comparison, panel, [&](const System& one) { return &one != &best; });
}

std::string winner_in_words(const Comparison& comparison, const Panel& panel, const System& best,
                            const System& rival) {
  const Lengths lengths = lengths_of(finished_systems(comparison, panel));
  const double lowest = final_perplexity(best), usual = final_perplexity(rival);
  std::string words = fmt::format(
      "{} has the lowest perplexity, {}, {:.1f} % below {} ({}), {}{}", title_with_routing(best),
      perplexity_text(lowest), 100 * (1 - lowest / usual), title_with_routing(rival),
      perplexity_text(usual), equal_in_words(lengths, panel), unequal_in_words(lengths, panel));
  const System* sparse =
      lowest_of(comparison, panel, [](const System& system) { return system.experts > 0; });
  if (sparse != nullptr && sparse != &best && sparse != &rival)
    words += fmt::format("; the lowest of sparse systems is {}, {} ({} against {})",
                         title_with_routing(*sparse), perplexity_text(final_perplexity(*sparse)),
                         change_text(final_perplexity(*sparse), lowest), best.title);
  return fmt::format("{}. {}.", words, noise_in_words(best, rival));
}

}  // namespace

Difference difference_of(const Spread& one, const Spread& other) {
  // 97.5 % of Student's distribution lie below, by degrees of freedom from 1.
  static constexpr std::array<double, 10> kStudent = {12.71, 4.30, 3.18, 2.78, 2.57,
                                                      2.45,  2.36, 2.31, 2.26, 2.23};
  if (one.count == 0 || other.count == 0) return Difference::kUnknown;
  double squares = 0;
  size_t freedom = 0;
  for (const Spread* spread : {&one, &other}) {
    if (spread->count < 2) continue;
    freedom += spread->count - 1;
    squares += spread->deviation * spread->deviation * static_cast<double>(spread->count - 1);
  }
  if (freedom == 0) return Difference::kUnknown;
  const double error =
      std::sqrt(squares / static_cast<double>(freedom) *
                (1 / static_cast<double>(one.count) + 1 / static_cast<double>(other.count)));
  const double bound = kStudent[std::min(freedom, kStudent.size()) - 1] * error;
  return std::abs(one.mean - other.mean) > bound ? Difference::kBeyondNoise
                                                 : Difference::kWithinNoise;
}

std::string why_not_comparable(const Comparison& comparison, const Panel& panel) {
  const std::vector<const System*> systems = finished_systems(comparison, panel);
  for (size_t i = 1; i < systems.size(); ++i) {
    const std::string difference = difference_in_validation(*systems.front(), *systems[i]);
    if (!difference.empty()) return difference;
  }
  const Lengths lengths = lengths_of(systems);
  if (systems.size() < 2 || !equal_in_words(lengths, panel).empty()) return "";
  if (std::ranges::any_of(lengths.tokens.values, [](double x) { return !(x > 0); }))
    return "how long each of them was trained is not known";
  return fmt::format("they were trained for different lengths, on {} tokens in {}",
                     span_text(lengths.tokens.values, count_text),
                     span_text(lengths.seconds.values, time_text));
}

std::string verdict(const Comparison& comparison, const Panel& panel) {
  const std::vector<const System*> systems = finished_systems(comparison, panel);
  const System* best = lowest_of(comparison, panel, [](const System&) { return true; });
  if (best == nullptr) return "No system was trained to its end and validated yet.";
  const std::string lowest = perplexity_text(final_perplexity(*best));
  if (systems.size() == 1)
    return fmt::format("{} was trained to its end and validated{}: perplexity {}.",
                       title_with_routing(*best), panel.systems.size() > 1 ? ", it alone" : "",
                       lowest);
  if (const std::string reason = why_not_comparable(comparison, panel); !reason.empty())
    return fmt::format("No winner can be named: {}.", reason);
  const System* rival = rival_of(comparison, panel, *best);
  return winner_in_words(comparison, panel, *best, *rival);
}

}  // namespace ballast::pages
