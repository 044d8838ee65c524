// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ballast/experts/routing.h"

namespace ballast::inference {

// How far two computations of the same number in a model may be apart by rounding alone, as a share
// of the size that such numbers have: 16 sqrt(depth) (u + sqrt(width) v).
//   u: unit roundoff of `working`, to which every layer's result is rounded;
//   v: that of the sums of `width` products, fp32 or fp64. Independent errors of additions add
//      up to sqrt(width) v, and those of `depth` layers in squares too;
//   16: what layers may amplify. The audit of trained models finds 1/80 of the bound, in fp32 and
//      fp64; the whole error of bf16 models, against fp64, is 1/8 to 1/4 of it.
double rounding_bound(at::ScalarType working, int64_t width, int64_t depth);

struct ComparisonBounds {
  double scores = 0;  // both relative, see rounding_bound
  double logits = 0;
};

struct ComparisonCounts {
  int64_t routes = 0;           // compared
  int64_t ties = 0;             // of them changed by a tie
  int64_t changed_routes = 0;   // of them changed otherwise
  int64_t logits = 0;           // positions compared
  int64_t changed_logits = 0;   // of them beyond the bound
  int64_t left_out = 0;         // positions whose logits a tie may have changed
  double logit_difference = 0;  // the largest, as a share of the position's largest logit

  void add(const ComparisonCounts& other);
};

// Compares two passes over the same windows that differ from some token on: what comes before, the
// prefix, must have gone to the same experts and have the same logits.
//
// A route may change where its two experts tie within rounding: where their scores differ by no
// more than twice what the token's scores differ between the passes, nor twice the bound. Tokens
// from there on, in later layers and the logits, may then differ, and are left out.
class PrefixComparison {
 public:
  // lengths[row]: tokens of the prefix; 0: nothing of the row is compared. windows[row]: its
  // number, for messages; rows without one are not compared.
  PrefixComparison(const ComparisonBounds& bounds, std::vector<uint64_t> windows,
                   std::vector<int64_t> lengths);

  // One layer, in the order in which tokens pass them; each [rows * context] and fp32 [..,
  // experts], on the CPU. `offset`: the most that affinities exceed scores by, prices.
  void add_routes(const experts::SeenRoute& before, const experts::SeenRoute& after, double offset);
  // Positions of the row's prefix that no tie has touched: what add_logits wants.
  int64_t untouched(int64_t row) const { return untouched_[static_cast<size_t>(row)]; }
  // Logits [n, vocabulary] of positions from `first` on, before untouched(row).
  void add_logits(int64_t row, int64_t first, const at::Tensor& before, const at::Tensor& after);

  const ComparisonCounts& counts() const { return counts_; }
  const std::string& first_leak() const { return first_leak_; }  // for people; empty: none

 private:
  struct Place {
    int64_t row, position;
  };
  void judge(const Place& place, const experts::SeenRoute& before, const experts::SeenRoute& after,
             double size);
  void tell(const Place& place, const std::string& what);

  ComparisonBounds bounds_;
  std::vector<uint64_t> windows_;
  std::vector<int64_t> lengths_, untouched_, next_untouched_;
  ComparisonCounts counts_;
  std::string first_leak_;
};

}  // namespace ballast::inference
