// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

// constexpr, so that kernels on a GPU compute the same.
namespace ballast::experts {

// What is compared to choose an expert: an affinity, divided by the expert's length where `lengths`
// are given. An expert of no length has no direction, and a score of zero.
template <typename Scalar>
constexpr Scalar score_of(const Scalar* affinities, const Scalar* lengths, int64_t expert) {
  if (lengths == nullptr) return affinities[expert];
  constexpr Scalar kLeast = 1e-20;
  return affinities[expert] / (lengths[expert] < kLeast ? kLeast : lengths[expert]);
}

// The best of the experts that are offered; of equal ones that with the lower number. A score that
// is not a number is never better.
template <typename Scalar>
struct BestExpert {
  Scalar score = -std::numeric_limits<Scalar>::infinity();
  int expert = 0;  // where none is better: this one

  constexpr void offer(Scalar other, int number) {
    if (other > score || (other == score && number < expert)) {
      score = other;
      expert = number;
    }
  }
};

}  // namespace ballast::experts
