// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ballast/assignment/active_problem.h"
#include "ballast/assignment/fixed_point.h"

namespace ballast::assignment {

// Every token shared among all experts in proportion to exp(profit / temperature): what CoreNewton
// does within a core, for prices that are too far off for one.
class WholeShares {
 public:
  static constexpr int64_t kMostExperts = 256;  // that the curvature is affordable for

  struct At {
    const std::vector<Units>* prices = nullptr;  // [E]
    double units_per_score = 1;
    float temperature = 1;  // in units
  };
  void reserve(const ActiveProblem& problem);  // so that `measure` allocates nothing

  // REQUIRES: at most kMostExperts experts, no forbidden pair. The same on any number of threads.
  void measure(const ActiveProblem& problem, const At& at, size_t threads);

  std::span<const double> loads() const { return loads_; }  // [E]
  std::span<const int64_t> best() const { return best_; }   // [E] tokens with their best expert
  // [E, E rounded up to lanes] the loads' derivatives by -price / temperature, from some rows; the
  // half above the diagonal.
  const std::vector<float>& curvature() const { return curvature_; }

 private:
  void add_curvature(int64_t experts, float weight, size_t threads);

  static constexpr int64_t kSamples = 512;  // rows that curvature is from, or up to twice as many

  int64_t padded_ = 0, samples_ = 0;
  std::vector<float> price_;      // [padded] in scores
  std::vector<float> soft_;       // [blocks, padded]
  std::vector<int32_t> counts_;   // [blocks, padded]
  std::vector<float> sample_;     // [samples, padded] shares of the rows that curvature is from
  std::vector<float> curvature_;  // [E, padded]
  std::vector<double> loads_;
  std::vector<int64_t> best_;
};

}  // namespace ballast::assignment
