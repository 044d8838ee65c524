// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ballast/assignment/problem.h"
#include "ballast/system/random.h"

namespace ballast::test {

// A problem that owns its memory.
struct OwnedProblem {
  int64_t tokens = 0;
  int64_t experts = 1;
  std::vector<float> scores = {};  // [tokens, experts]
  assignment::LoadBounds bounds = {};
  std::vector<uint8_t> counted = {};  // [tokens], or empty
  assignment::NonFinite non_finite = assignment::NonFinite::kReject;
  std::vector<double> start_prices = {};
  std::string about = {};  // what it is made of, for messages

  assignment::AssignmentProblem problem() const {
    return {.scores = assignment::score_matrix(scores.data(), tokens, experts),
            .bounds = bounds,
            .counted = counted,
            .non_finite = non_finite};
  }
};

// Random problems of every awkward sort: problem i is a function of (seed, i) and the sizes.
class ProblemMaker {
 public:
  ProblemMaker(uint64_t seed, uint64_t index, int64_t most_tokens, int64_t most_experts)
      : random_(seed, "fuzz", index) {
    made_.tokens = 1 + below(most_tokens);
    made_.experts = 1 + below(most_experts);
    if (chance(0.25)) made_.tokens = std::min(made_.tokens, 1 + below(20));
    made_.about = "problem " + std::to_string(index) + ": [" + std::to_string(made_.tokens) + ", " +
                  std::to_string(made_.experts) + "]";
  }

  OwnedProblem make() {
    make_scores();
    make_bounds();
    if (chance(0.25)) make_mask();
    if (chance(0.3)) make_prices();
    return std::move(made_);
  }

  // The same with pairs that are forbidden, so that it may have no answer.
  OwnedProblem make_with_forbidden() {
    made_.non_finite = assignment::NonFinite::kForbid;
    make_scores();
    make_bounds();
    if (chance(0.2)) make_mask();
    const double share = random_.uniform() * random_.uniform();
    note("forbidden", share);
    for (float& score : made_.scores)
      if (chance(share)) score = -std::numeric_limits<float>::infinity();
    return std::move(made_);
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_.below(static_cast<uint64_t>(n))); }
  bool chance(double probability) { return random_.uniform() < probability; }
  float normal() { return static_cast<float>(random_.normal()); }
  void note(const std::string& what, double value) {
    made_.about += ", " + what + " " + std::to_string(value);
  }

  float score(int64_t sort, const std::vector<float>& row, int64_t e) {
    switch (sort) {
      case 0:
        return static_cast<float>(below(3));  // many ties
      case 1:
        return std::round(normal() * 8) / 8;  // some ties
      case 2:
        return row[static_cast<size_t>(e)];  // equal rows
      case 3:
        return 1.5F;  // all equal
      case 4:
        return row[static_cast<size_t>(e)] + 1e-4F * normal();  // one shared order
      case 5:
        return normal() + (e == 0 ? 100.0F : 0.0F);  // one preferred
      case 6:
        return chance(0.02) ? normal() * 1e30F : normal();  // huge outliers
      case 7:
        return normal() * 1e-41F;  // denormals
      case 8:
        return normal() * std::exp2(static_cast<float>(below(200) - 100));  // any magnitude
      case 9:
        return std::numeric_limits<float>::max() * (chance(0.5) ? 1.0F : -1.0F);
      default:
        return normal();
    }
  }

  void make_scores() {
    const int64_t sort = below(15);
    note("sort", static_cast<double>(sort));
    std::vector<float> row(static_cast<size_t>(made_.experts));
    for (float& x : row) x = normal();
    made_.scores.resize(static_cast<size_t>(made_.tokens * made_.experts));
    for (int64_t t = 0; t < made_.tokens; ++t) {
      const bool repeats = (sort == 12 || sort == 13) && t > 0 && chance(0.3);  // identical rows
      const int64_t row_sort = sort == 14 ? (chance(0.97) ? 0 : 11) : sort;  // mostly whole numbers
      for (int64_t e = 0; e < made_.experts; ++e) {
        const auto at = static_cast<size_t>(t * made_.experts + e);
        made_.scores[at] = repeats ? made_.scores[static_cast<size_t>(e)] : score(row_sort, row, e);
      }
    }
  }

  // Throws `count` tokens into experts, each with its own odds.
  std::vector<int32_t> throw_tokens(int64_t count) {
    std::vector<int32_t> loads(static_cast<size_t>(made_.experts));
    const int64_t reachable = 1 + below(made_.experts);  // the others get nothing
    for (int64_t i = 0; i < count; ++i)
      ++loads[static_cast<size_t>(std::min(below(reachable), below(reachable)))];
    return loads;
  }

  void make_bounds() {
    const int64_t sort = below(6);
    note("bounds", static_cast<double>(sort));
    made_.bounds = assignment::equal_loads(made_.tokens, made_.experts);
    if (sort == 0) return;
    const std::vector<int32_t> loads = throw_tokens(made_.tokens);
    made_.bounds = {loads, loads};  // sort 1: exact, uneven, some zero
    if (sort == 2) {                // at most
      std::ranges::fill(made_.bounds.lower, 0);
      for (int32_t& upper : made_.bounds.upper)
        upper = std::min<int32_t>(static_cast<int32_t>(made_.tokens),
                                  upper + static_cast<int32_t>(below(5)));
    } else if (sort == 3) {  // a range
      for (int32_t& lower : made_.bounds.lower) lower = static_cast<int32_t>(below(lower + 1));
      for (int32_t& upper : made_.bounds.upper) upper += static_cast<int32_t>(below(4));
    } else if (sort == 4) {  // one may take all
      std::ranges::fill(made_.bounds.lower, 0);
      made_.bounds.upper[static_cast<size_t>(below(made_.experts))] =
          static_cast<int32_t>(made_.tokens);
    }
  }

  void make_mask() {
    const double share = chance(0.1) ? 0.0 : random_.uniform();
    note("counted", share);
    made_.counted.resize(static_cast<size_t>(made_.tokens));
    for (uint8_t& counted : made_.counted) counted = chance(share) ? 1 : 0;
  }

  void make_prices() {
    const double scale = std::exp2(static_cast<double>(below(80) - 40));
    note("start prices", scale);
    made_.start_prices.resize(static_cast<size_t>(made_.experts));
    for (double& price : made_.start_prices) price = scale * random_.normal();
  }

  RandomStream random_;
  OwnedProblem made_;
};

}  // namespace ballast::test
