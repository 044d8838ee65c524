// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ballast/assignment/core.h"
#include "ballast/assignment/whole_shares.h"

namespace ballast::assignment {

// What loads should be. Tokens that are worth the same everywhere (padding, and places that stay
// empty) lie where prices are lowest.
struct SoftTargets {
  std::vector<double> places;  // [E]
  double free = 0;             // free tokens among them
  std::vector<double> limit;   // [E] the most free tokens an expert takes
};

// What a Newton pass found at the prices it was given.
struct SoftLoads {
  double imbalance = 0;  // tokens above their expert's places, by shares
  double dual = 0;       // what Newton's method makes small, up to a constant of the level
};

// Moves prices towards balance: each open token is shared among its candidates in proportion to
// exp(profit / temperature), which makes the dual smooth, and Newton's method finds its minimum. A
// lower temperature comes closer to the true problem and converges from less far away.
class CoreNewton {
 public:
  void reserve(int64_t tokens, int64_t pairs);

  // Loads and curvature at `prices`.
  SoftLoads measure(const Core& core, const SoftTargets& targets, const std::vector<Units>& prices,
                    float temperature);

  // Instead of `measure`: what WholeShares found at `prices`.
  SoftLoads adopt(const WholeShares& shares, const SoftTargets& targets,
                  const std::vector<Units>& prices, float temperature);

  // Instead of `measure`: whole tokens with their best expert, and the curvature that the last
  // `measure` found in a smaller sample of tokens, `times` as large now.
  SoftLoads measure_whole(std::span<const double> loads, const SoftTargets& targets, float times);
  SoftLoads measure_whole(const Core& core, const SoftTargets& targets, float times);

  // After `measure`, or `adopt`: the imbalance if each token went whole to its largest share.
  int64_t whole_imbalance(const SoftTargets& targets) const;
  int64_t whole_imbalance(const WholeShares& shares, const SoftTargets& targets) const;

  // After `measure`: experts with less than a tenth of their places, of two or more.
  std::span<const int32_t> idle_experts(const SoftTargets& targets);

  // After `measure`: the few experts that have most tokens for their places, of those that have a
  // quarter too many, and more than chance explains; of eight places or more. `chance`: by which
  // part of its places an expert's load is off where prices are as good as they can be.
  std::span<const int32_t> crowded_experts(const SoftTargets& targets, double chance);

  // After `measure`: one step from the prices measured. Returns how far the model would have moved
  // the price that moves most, in temperatures; each price's step is cut off at 6.
  double step(std::vector<Units>& prices);

 private:
  double share_out(const Core& core, float temperature);  // returns their part of the dual
  void share_out_free(const SoftTargets& targets, const std::vector<Units>& prices);
  void add_curvature(const Core& core, int32_t group);
  void add_all_curvature(const Core& core, int32_t group);
  void complete_hessian();
  SoftLoads compare(const SoftTargets& targets);
  void solve_for_direction();

  float temperature_ = 1;
  bool has_shares_ = false;        // otherwise `load_` is of whole tokens
  std::vector<float> moved_;       // [E] prices - core.prices
  std::vector<float> share_;       // [pairs] before normalisation
  std::vector<float> sum_, size_;  // [groups] of shares before normalisation, and tokens
  std::vector<double> load_;       // [E]
  std::vector<double> best_load_;  // [E] of a core's whole tokens
  std::vector<double> free_load_;  // [E] free tokens among them
  std::vector<int64_t> whole_;     // [E] tokens that have their largest share there
  std::vector<int32_t> idle_, crowded_;
  std::vector<float> hessian_;                            // [E, padded E]
  std::vector<float> diagonal_;                           // [E] of it, while it is summed
  std::vector<float> excess_;                             // [E] load - target
  std::vector<float> direction_;                          // [E]
  std::vector<float> lengths_;                            // [E]
  std::vector<float> residual_, search_, image_, scale_;  // conjugate gradients
  int64_t padded_ = 0;
};

}  // namespace ballast::assignment
