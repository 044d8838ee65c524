// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ballast::batches {

// Deals an endless sequence of rows out to sources in proportion to weights, evenly along the
// sequence, as a pure function of the row's number.
class SourceMix {
 public:
  // Weights are taken in their exact ratio where they are decimal fractions of up to nine digits
  // (0.7 : 0.3, 1 : 2), else to 2^-40. Throws UserError for a weight that is not positive.
  explicit SourceMix(const std::vector<double>& weights);

  struct Place {
    size_t source;
    uint64_t index;  // how many rows before this one went to that source
  };
  Place operator()(uint64_t row) const;

  // Among the first `rows` rows, how many go to `source`: within the number of sources of its exact
  // share, and exactly it whenever `rows` is a multiple of period().
  uint64_t count(size_t source, uint64_t rows) const;
  uint64_t period() const { return rest_.front(); }

 private:
  std::vector<uint64_t> weights_;  // without a common factor
  std::vector<uint64_t> rest_;     // sum of weights_ from each on
};

}  // namespace ballast::batches
