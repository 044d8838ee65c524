// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ballast/training/trainer.h"

namespace ballast::test {

// Each token says which one follows: quickly learned.
inline std::vector<batches::WeightedSource> counting_source(int64_t tokens, int64_t vocabulary) {
  std::vector<int64_t> ids(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < tokens; ++i) ids[static_cast<size_t>(i)] = 7 * i % vocabulary;
  return {{tokens::tokens_in_memory(std::move(ids), {.name = "test", .format = "memory"}), 1.0}};
}

const inline model::ComputePlace kDouble{.working = at::kDouble, .master = at::kDouble};

inline std::vector<double> losses(training::Trainer& trainer, int64_t steps) {
  std::vector<double> result;
  for (int64_t i = 0; i < steps; ++i) result.push_back(trainer.step().loss);
  return result;
}

inline double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b.at(i)));
  return largest;
}

}  // namespace ballast::test
