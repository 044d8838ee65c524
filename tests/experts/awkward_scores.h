// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "ballast/experts/assigner.h"

namespace ballast::experts {

// A score matrix of one of several awkward sorts.
inline at::Tensor scores_of(int sort, int64_t tokens, int64_t experts) {
  const at::Tensor gauss = at::randn({tokens, experts});
  switch (sort) {
    case 1:
      return at::randint(0, 3, {tokens, experts}).to(at::kFloat);
    case 2:
      return at::full({tokens, experts}, 1.5);
    case 3:
      return gauss.slice(0, 0, 1).expand({tokens, experts}).contiguous();
    case 4:
      return gauss + 4 * at::randn({1, experts});
    case 5:
      return (gauss * 4).round() / 4;
    case 6:
      return gauss * 1e-39;
    case 7:
      return gauss + 1e4 * at::rand({tokens, experts}).lt(0.01).to(at::kFloat);
    default:
      return gauss;
  }
}
inline constexpr int kSorts = 8;

// The order is the stable sort of the experts, and its inverse; loads are counts; all by the CPU.
inline void expect_ordered(const TensorAssignment& result, int64_t experts) {
  const at::Tensor chosen = result.expert_of_token.cpu().to(at::kLong);
  const at::Tensor order = at::argsort(chosen, /*stable=*/true, 0, false);
  EXPECT_TRUE(at::equal(result.tokens_by_expert.cpu().to(at::kLong), order));
  EXPECT_TRUE(at::equal(result.place_of_token.cpu().to(at::kLong), at::argsort(order)));
  EXPECT_TRUE(at::equal(result.loads.cpu().to(at::kLong), at::bincount(chosen, {}, experts)));
}

}  // namespace ballast::experts
