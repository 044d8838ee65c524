// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ballast/assignment/core.h"
#include "ballast/assignment/core_extractor.h"
#include "ballast/assignment/core_newton.h"
#include "ballast/assignment/price_start.h"
#include "ballast/assignment/whole_shares.h"

namespace ballast::assignment {

// What a call of the exact solver did.
struct ExactWork {
  int64_t rows_read = 0;  // of scores, for glances, cores and single prices
  int64_t newton_steps = 0;
  int64_t whole_passes = 0;  // over all tokens and experts, where no core would do
  int64_t phases = 0;        // of exchanging
  int64_t tokens_moved = 0;  // by exchanges
  bool started_warm = false;
  bool wide = false;
};

// Candidates in a core that all but the oddest problems keep to.
int64_t most_usual_pairs(const ActiveProblem& problem);

// Finds prices at which nearly every expert gets its load: from a small sample of tokens, then from
// larger ones, up to all. A sample's loads are off by chance, and so are its prices: no more
// precision is asked of it.
class PriceDescent {
 public:
  struct Setup {
    bool wide = false;
    size_t threads = 1;
  };
  void begin(const ActiveProblem& problem, const Setup& setup, ExactWork& work);

  // Prices from samples, good enough to start on all tokens. `start_prices`: [E] or empty; dropped
  // if a sample shows that they are no better than none.
  void find_prices(std::span<const double> start_prices);

  // Takes the core of all tokens, in which half of them have this many candidates or more, and goes
  // down in it. False: prices came to the end of the core's reach, take a new one there.
  bool descend_on_all(int64_t candidates);

  const RowSample& all() const { return levels_.front(); }
  CoreExtractor& extractor() { return extractor_; }
  std::vector<Units>& prices() { return prices_; }
  Core& core() { return cores_[0]; }  // of all tokens
  // The smallest part of it in which prices can still move by `room`, and a place for a smaller
  // one.
  Core& part_with_room(Units room);
  Core& next_part() { return cores_[depth_ + 1]; }
  void forget_parts() { depth_ = 0; }
  int64_t imbalance() const { return imbalance_; }  // tokens above their expert's places

  // The lowest price becomes 0; experts without places get the highest.
  void normalise_prices();
  void snap_to_grid();  // the same, and to multiples of what scores seem to be multiples of

 private:
  void plan_levels();
  bool start_warm(std::span<const double> start_prices);
  void start_cold();
  void start_from_few();
  double chance_deviation() const;
  bool is_lost(const SoftLoads& loads) const;
  void anneal();
  int64_t annealed_imbalance(const RowSample& rows, float temperature, double& soft);
  bool price_idle_experts(const RowSample& rows);
  void price_crowded_experts(const RowSample& rows);
  void refine(const RowSample& rows);
  bool knows_curvature() const;
  bool can_glance() const;
  void glance(const RowSample& rows);
  void extract(const RowSample& rows, int64_t candidates);
  void set_targets(const RowSample& rows);
  bool descend(const RowSample& rows, bool is_last);
  bool cool_down(const SoftLoads& loads, bool coarse, bool stuck);
  bool is_enough(const SoftLoads& loads);
  bool step_within_reach();
  void shorten_step();
  void narrow_down(float temperature);

  const ActiveProblem* problem_ = nullptr;
  ExactWork* work_ = nullptr;
  CoreExtractor extractor_;
  PriceStart start_;
  CoreNewton newton_;
  WholeShares whole_;
  std::vector<RowSample> levels_;  // all tokens first, the smallest sample last
  SoftTargets targets_;            // of the level in work
  std::vector<double> shares_;     // [E] of a token
  std::vector<Units> prices_, before_, best_;
  static constexpr size_t kMostDepth = 6;
  std::array<Core, kMostDepth + 2> cores_;  // each a part of the one before
  size_t depth_ = 0;                        // of the one in work
  size_t threads_ = 1;
  bool left_core_ = false;       // of all tokens, when last gone down in
  bool left_coarsely_ = false;   // with its first, coarse step
  bool lost_ = false;            // prices were found to be too far off for any core
  bool annealed_ = false;        // prices are those of `anneal`, or came from there
  double start_rows_ = 0;        // that the first prices are from
  double measured_rows_ = 0;     // of the level at which curvature was last measured; 0: nowhere
  double priced_rows_ = 0;       // of the level whose shares last moved prices
  Units glanced_by_ = 0;         // how far the last glance moved two prices apart
  float first_temperature_ = 1;  // that fits the core's reach
  float last_temperature_ = 1;
  double moved_ = 0;  // by the last step, in temperatures
  int64_t imbalance_ = 0;
  struct Descent {  // where the one in work stands
    double rows = 1;
    double priced_by = 1;  // rows that its first prices are from
    bool is_last = false;  // of all tokens
    float temperature = 1;
    double cooler = 1;  // by which factor the temperature fell last
    double comparable_dual = std::numeric_limits<double>::max();
    double imbalance = std::numeric_limits<double>::max();
    int futile = 0, given_up = 0, shortened = 0, stalled = 0;
    int64_t least_imbalance = std::numeric_limits<int64_t>::max();
  };
  Descent state_;
};

}  // namespace ballast::assignment
