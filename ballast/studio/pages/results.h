// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ballast/studio/figures/line_chart.h"
#include "ballast/studio/pages/comparison.h"

namespace ballast::pages {

// Numbers of systems, computed from their runs.

// Over seeds. The deviation is that of a sample; NaN for fewer than two.
struct Spread {
  double mean = record::kUnknown, deviation = record::kUnknown;
  size_t count = 0;
};
Spread spread_of(const std::vector<double>& values);  // those that are not finite are passed over
double median_of(std::vector<double> values);         // likewise; NaN of none

struct SystemResult {
  Spread greedy, priced;  // perplexity at the last validation; greedy: also of dense models
  std::string routing;    // the better of the two for a BASE system; empty: there is one way
  double floor = record::kUnknown;  // entropy floor, as a perplexity
  double tokens = record::kUnknown, seconds = record::kUnknown,
         tokens_per_second = record::kUnknown;  // means over seeds
  double validated_tokens = record::kUnknown;   // that the last validation read
  bool whole_split = false;                     // they are all there are

  const Spread& best() const { return routing == "priced" ? priced : greedy; }
};
// Of the runs that came to their end; where none did, of all.
SystemResult result_of(const System& system);

// Where no run came to its end: the one that came farthest. Else null, and where no run has a step.
const RunRecord* half_trained_run(const System& system);
// The perplexity by which a system is compared, its best(); NaN for one that is half trained.
double final_perplexity(const System& system);
// "BASE x1 with priced routing"; the text alone where `routing` is empty.
std::string with_routing(const std::string& text, const std::string& routing);
// The same for a system: its title, and the routing of its final perplexity.
std::string title_with_routing(const System& system);
// The routing of validations before the last, and so of lines and perplexities at equal tokens:
// greedy or priced for a BASE system, else empty.
std::string routing_on_the_way(const System& system);
// Among the systems of a panel that `is_meant`, the one with the lowest final_perplexity(); null:
// none has one.
const System* lowest_of(const Comparison& comparison, const Panel& panel,
                        const std::function<bool(const System&)>& is_meant);

// Steps but the first of a start, in which memory is allocated and files are read.
std::vector<const record::StepRecord*> settled_steps(const RunRecord& run);

// The most tokens after which all trained systems of a panel have a validation loss; NaN if none.
double tokens_of_all(const Comparison& comparison, const Panel& panel);
// Perplexity of a system after so many tokens, mean over its seeds.
double perplexity_at(const System& system, double tokens);

enum class Against { kSeconds, kTokens };
// Validation perplexity of a system, mean over its seeds where each has it; with the band from the
// lowest to the highest seed where there are several. x is as `against` says, divided by `unit`.
figures::Series perplexity_series(const System& system, Against against, double unit);

// The system others are compared with: of a panel the one titled "Dense, equal FLOPs", else the
// first dense one, else the first; only those that have a step. Null where none has.
const System* reference_of(const Comparison& comparison, const Panel& panel);

}  // namespace ballast::pages
