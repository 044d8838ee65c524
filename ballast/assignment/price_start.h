// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ballast/assignment/core_extractor.h"

namespace ballast::assignment {

// First prices, from a small sample of rows and nothing else: the columns' means and deviations,
// then Sinkhorn's iteration (a price goes up by the logarithm of how far its expert is above its
// share) at falling temperatures.
class PriceStart {
 public:
  void find(const ActiveProblem& problem, const RowSample& rows, double units_per_score,
            std::span<const double> shares, std::vector<Units>& prices);
  // Of the sample's scores about their expert's mean, in units.
  float deviation() const { return deviation_; }

 private:
  void read(const ActiveProblem& problem, const RowSample& rows, double units_per_score);
  void iterate(float temperature, std::span<const double> shares);

  int64_t count_ = 0;
  int64_t experts_ = 0;
  int64_t padded_ = 0;
  float deviation_ = 0;
  std::vector<float> scores_;                                // [rows, padded E]
  std::vector<float> price_, load_, share_, sum_, squares_;  // [padded E]
};

}  // namespace ballast::assignment
