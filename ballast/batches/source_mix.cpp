// SPDX-License-Identifier: Apache-2.0
#include "ballast/batches/source_mix.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "ballast/system/error.h"

namespace ballast::batches {
namespace {

constexpr double kFinest = 0x1p40;

// Integers in the ratio of the weights.
std::vector<uint64_t> as_integers(const std::vector<double>& weights) {
  const double largest = *std::max_element(weights.begin(), weights.end());
  std::vector<uint64_t> integers(weights.size());
  for (double scale = 1; scale <= 1e9 && largest * scale <= kFinest; scale *= 10) {
    bool exact = true;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double scaled = weights[i] * scale, rounded = std::round(scaled);
      integers[i] = static_cast<uint64_t>(rounded);
      exact = exact && rounded >= 1 && std::abs(scaled - rounded) <= 1e-12 * rounded;
    }
    if (exact) return integers;
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    integers[i] = static_cast<uint64_t>(std::max(1.0, std::round(weights[i] / largest * kFinest)));
  }
  return integers;
}

// ceil(rows * part / whole) without overflow.
uint64_t share(uint64_t rows, uint64_t part, uint64_t whole) {
  const auto product = static_cast<unsigned __int128>(rows) * part;
  return static_cast<uint64_t>((product + whole - 1) / whole);
}

}  // namespace

SourceMix::SourceMix(const std::vector<double>& weights) {
  if (weights.empty()) fail("no data source to take batches from");
  for (const double weight : weights) {
    if (!(weight > 0) || !std::isfinite(weight)) {
      fail(
          "a data source has weight {}: weights must be greater than 0 (leave the source out "
          "instead)",
          weight);
    }
  }
  weights_ = as_integers(weights);
  uint64_t divisor = 0;
  for (const uint64_t weight : weights_) divisor = std::gcd(divisor, weight);
  for (uint64_t& weight : weights_) weight /= divisor;
  rest_.resize(weights_.size());
  std::partial_sum(weights_.rbegin(), weights_.rend(), rest_.rbegin());
}

// The first source takes its share of all rows, the second its share of what is left, and so on:
// each of these is a rounding of one product, so counts need no table and no history.
SourceMix::Place SourceMix::operator()(uint64_t row) const {
  for (size_t i = 0; i + 1 < weights_.size(); ++i) {
    const uint64_t before = share(row, weights_[i], rest_[i]);
    const uint64_t after = share(row + 1, weights_[i], rest_[i]);
    if (after > before) return {i, before};
    row -= before;
  }
  return {weights_.size() - 1, row};
}

uint64_t SourceMix::count(size_t source, uint64_t rows) const {
  for (size_t i = 0; i < source; ++i) rows -= share(rows, weights_[i], rest_[i]);
  return source + 1 < weights_.size() ? share(rows, weights_[source], rest_[source]) : rows;
}

}  // namespace ballast::batches
