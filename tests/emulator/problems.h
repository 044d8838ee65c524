// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "ballast/system/random.h"
#include "tests/assignment/random_problem.h"
#include "tests/emulator/emulated_solver.h"

// Problems of all sorts.
namespace ballast::emulator {

// The thread sanitizer takes an emulated thread for one of its own, and has no room for 16 * 512.
#ifdef __SANITIZE_THREAD__
inline constexpr int kMostProcessors = 8;
#else
inline constexpr int kMostProcessors = 16;
#endif

enum Sort {
  kGauss,
  kThreeValues,
  kEqual,
  kEqualRows,
  kPreferred,
  kRounded,
  kTiny,
  kHuge,
  kOutliers,
  kClustered,  // twenty sorts of tokens, some of them common; experts that all like or not
  kSeparated,  // the same, far from each other
  kCollapsed,  // two sorts of tokens, and ever smaller differences within them
  kSorts
};

class ScoreMaker {
 public:
  ScoreMaker(int sort, int tokens, int experts, RandomStream& random)
      : sort_(sort),
        tokens_(static_cast<size_t>(tokens)),
        experts_(static_cast<size_t>(experts)),
        random_(random),
        common_(normals(experts_)),
        directions_(normals(20 * experts_)) {}

  void append_to(std::vector<float>& scores) {
    for (size_t t = 0; t < tokens_; ++t) {
      draw_token();
      for (size_t e = 0; e < experts_; ++e) scores.push_back(score(e));
    }
  }

 private:
  float normal() { return static_cast<float>(random_.normal()); }
  std::vector<float> normals(size_t count) {
    std::vector<float> made(count);
    for (float& x : made) x = normal();
    return made;
  }

  void draw_token() {
    const double u = random_.uniform();
    cluster_ = static_cast<size_t>(20 * u * u * u);
    parts_ = {(u < 0.7 ? -0.65F : 1.5F) + 0.02F * normal(), 0.1F * normal(), 0.01F * normal(),
              0.001F * normal()};
  }

  float score(size_t e) {
    switch (sort_) {
      case kThreeValues:
        return static_cast<float>(random_.below(3));
      case kEqual:
        return 1.5F;
      case kEqualRows:
        return common_[e];
      case kPreferred:
        return normal() + 4 * common_[e];
      case kRounded:
        return std::round(4 * normal()) / 4;
      case kTiny:
        return normal() * 1e-39F;
      case kHuge:
        return normal() * 1e30F;
      case kOutliers:
        return normal() + (random_.uniform() < 0.01 ? 1e4F : 0.0F);
      case kClustered:
        return 4 * common_[e] + 3 * directions_[cluster_ * experts_ + e] + normal();
      case kSeparated:
        return 4 * common_[e] + 10 * directions_[cluster_ * experts_ + e] + 0.5F * normal();
      case kCollapsed: {
        float sum = 2 * common_[e];
        for (size_t d = 0; d < parts_.size(); ++d) sum += parts_[d] * directions_[d * experts_ + e];
        return sum;
      }
      default:
        return normal();
    }
  }

  int sort_;
  size_t tokens_, experts_;
  RandomStream& random_;
  std::vector<float> common_, directions_;
  size_t cluster_ = 0;
  std::vector<float> parts_;
};

inline Problems problems_of(int tokens, int experts, const std::vector<int>& sorts, uint64_t seed) {
  RandomStream random(seed, "emulated");
  Problems made{.tokens = tokens, .experts = experts};
  for (const int sort : sorts) ScoreMaker(sort, tokens, experts, random).append_to(made.scores);
  return made;
}

// Two problems of one shape that fits on chip: experts divide tokens. Some have start prices.
inline Problems fuzzed(uint64_t seed) {
  RandomStream random(seed, "emulated shapes");
  const auto below = [&](int n) {
    return static_cast<int>(random.below(static_cast<uint64_t>(n)));
  };
  const int experts = 2 + below(seed % 4 == 0 ? 127 : 31);
  const int each = 1 + below(std::max(1, 256 / experts));
  Problems made = problems_of(each * experts, experts, {below(kSorts), below(kSorts)}, seed);
  for (int i = 0; seed % 3 == 1 && i < 2 * experts; ++i)
    made.start_prices.push_back(random.normal());
  return made;
}

// Three of 64 x 8; the first is finite, the second's first odd score is of token 17 for expert 5,
// the third's of token 63 for expert 0.
inline Problems odd_problems() {
  Problems made = problems_of(64, 8, {kGauss, kGauss, kGauss}, 6);
  const auto score = [&](size_t problem, size_t token, size_t expert) -> float& {
    return made.scores[(problem * 64 + token) * 8 + expert];
  };
  score(1, 17, 5) = std::numeric_limits<float>::quiet_NaN();
  score(1, 60, 7) = -std::numeric_limits<float>::infinity();
  score(2, 63, 0) = std::numeric_limits<float>::infinity();
  return made;
}

// One that has been made for the CPU: uneven shares, padding, and whatever else.
inline Problems problems_of(test::OwnedProblem made) {
  return {.tokens = static_cast<int>(made.tokens),
          .experts = static_cast<int>(made.experts),
          .scores = std::move(made.scores),
          .start_prices = std::move(made.start_prices),
          .counted = std::move(made.counted),
          .bounds = std::move(made.bounds),
          .non_finite = made.non_finite};
}

}  // namespace ballast::emulator
