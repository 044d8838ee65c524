// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ballast::inference {

// In how many directions the scores of a layer's experts vary over tokens. Where they vary in one,
// tokens differ only in how much they like what all like: no assignment can tell them apart.
class ScoreMoments {
 public:
  explicit ScoreMoments(int64_t experts) : experts_(experts) {}

  // scores: [T, E]; counted: [T] bool on the same device, the others are passed over. What is added
  // to all scores of a token, or to those of an expert, makes no difference.
  void add(const at::Tensor& scores, const at::Tensor& counted);
  // [E + 1, E + 1] double on the CPU: summed over workers, it is what all of them added.
  at::Tensor& sums();
  // The variance in the first singular direction of the centred scores over that in all: from
  // 1 / (E - 1) to 1. 0: they do not vary. NaN: they are not finite.
  double first_direction_share() const;

 private:
  int64_t experts_;
  // Undefined before the first; then where scores are. The last row and column are sums of scores,
  // and where they meet stands the number of tokens.
  at::Tensor sums_;
};

}  // namespace ballast::inference
