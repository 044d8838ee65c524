// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/price_descent.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ballast::assignment {
namespace {

// Tokens above their expert's share in a sample, by chance alone, when prices are right.
double chance_imbalance(const RowSample& rows, int64_t experts) {
  return 0.4 * std::sqrt(static_cast<double>(rows.count) * static_cast<double>(experts));
}

}  // namespace

int64_t most_usual_pairs(const ActiveProblem& problem) {
  constexpr int64_t kCandidates = 16;
  return problem.tokens * std::min(problem.experts, kCandidates) + 2 * kScanBlock * problem.experts;
}

void PriceDescent::begin(const ActiveProblem& problem, const Setup& setup, ExactWork& work) {
  problem_ = &problem;
  work_ = &work;
  extractor_.begin(problem, setup.wide, setup.threads);
  work.wide = extractor_.is_wide();
  prices_.assign(problem.experts, 0);
  threads_ = setup.threads;
  lost_ = annealed_ = left_core_ = false;
  start_rows_ = 0;
  const std::vector<int32_t>& upper = problem.bounds->upper;
  const double places = std::accumulate(upper.begin(), upper.end(), 0.0);
  shares_.resize(problem.experts);
  for (int64_t e = 0; e < problem.experts; ++e) shares_[e] = upper[e] / std::max(places, 1.0);
  plan_levels();
  // Room for more candidates than there ever are, so that calls of one size allocate once.
  const int64_t pairs = most_usual_pairs(problem);
  for (Core& core : cores_) {
    core.reserve(problem.tokens, problem.experts, pairs);
  }
  extractor_.reserve(pairs);
  newton_.reserve(problem.tokens, pairs);
  whole_.reserve(problem);
  best_.reserve(problem.experts);
}

void PriceDescent::plan_levels() {
  // A glance mends what the largest sample got wrong: that one may be smaller.
  const int64_t fewest = std::max<int64_t>(2 * problem_->experts, 256);
  const int64_t fewest_first =
      can_glance() ? std::max<int64_t>(2 * problem_->experts, 192) : fewest;
  levels_.assign(1, {.count = problem_->tokens, .stride = 1});
  // Odd strides: sequences have lengths that are powers of two, and their first tokens are alike.
  for (int64_t every = 4;
       problem_->tokens / (every + 1) >= (levels_.size() == 1 ? fewest_first : fewest);
       every *= 4) {
    levels_.push_back({.count = problem_->tokens / (every + 1), .stride = every + 1});
  }
}

void PriceDescent::normalise_prices() {
  const std::vector<int32_t>& upper = problem_->bounds->upper;
  const Units highest = extractor_.highest_price();
  Units lowest = std::numeric_limits<Units>::max();
  for (int64_t e = 0; e < problem_->experts; ++e) {
    if (upper[e] > 0) lowest = std::min(lowest, prices_[e]);
  }
  for (int64_t e = 0; e < problem_->experts; ++e) {
    prices_[e] = upper[e] > 0 ? std::min(prices_[e] - lowest, highest - 1) : highest;
  }
}

// Prices between the scores' multiples break ties at random that exchanges then have to mend. The
// grid is that of a few rows, so this is for prices that something exact comes after.
void PriceDescent::snap_to_grid() {
  normalise_prices();
  const Units grid = extractor_.grid();
  for (Units& price : prices_) {
    if (grid > 1 && price < extractor_.highest_price() - grid)
      price = (price + grid / 2) / grid * grid;
  }
}

void PriceDescent::find_prices(std::span<const double> start_prices) {
  measured_rows_ = 0;
  work_->started_warm = !start_prices.empty() && start_warm(start_prices);
  if (!work_->started_warm) start_cold();
}

// Old prices are tried on the largest sample. They are good if loads there are off by little more
// than chance; otherwise samples from the smallest on find prices faster than they could be mended.
bool PriceDescent::start_warm(std::span<const double> start_prices) {
  const RowSample& rows = levels_[levels_.size() > 1 ? 1 : 0];
  const double highest = static_cast<double>(extractor_.highest_price());
  const double lowest = *std::min_element(start_prices.begin(), start_prices.end());
  for (int64_t e = 0; e < problem_->experts; ++e) {
    const double units = (start_prices[e] - lowest) * extractor_.units_per_score();
    prices_[e] = std::llrint(std::min(units, highest));
  }
  snap_to_grid();
  constexpr int64_t kCandidates = 4;
  extract(rows, kCandidates);
  set_targets(rows);
  SoftLoads loads = newton_.measure(core(), targets_, prices_, first_temperature_);
  // A few prices that are far off are mended; many are no start at all.
  const auto mendable = static_cast<size_t>(std::max<int64_t>(4, problem_->experts / 32));
  if (newton_.idle_experts(targets_).size() > mendable) return false;
  if (price_idle_experts(rows)) {
    extract(rows, kCandidates);
    loads = newton_.measure(core(), targets_, prices_, first_temperature_);
  }
  measured_rows_ = priced_rows_ = static_cast<double>(rows.count);
  last_temperature_ = first_temperature_;
  const double chance = chance_imbalance(rows, problem_->experts);
  const double tolerable = std::max(1.2 * chance, std::min(3 * chance, 0.25 * measured_rows_));
  if (loads.imbalance > tolerable) return false;
  if (levels_.size() > 1 && loads.imbalance > 0.8 * chance && !descend(rows, false)) refine(rows);
  snap_to_grid();
  return true;
}

void PriceDescent::start_from_few() {
  RowSample rows = levels_.back();
  const int64_t experts = problem_->experts;
  const int64_t few = std::max({2 * experts, std::min<int64_t>(8 * experts, 128), int64_t{64}});
  const int64_t skip = std::max<int64_t>(1, rows.count / few) | 1;
  rows = {.count = rows.count / skip, .stride = rows.stride * skip};
  start_rows_ = priced_rows_ = static_cast<double>(rows.count);
  start_.find(*problem_, rows, extractor_.units_per_score(), shares_, prices_);
}

void PriceDescent::start_cold() {
  start_from_few();
  measured_rows_ = 0;
  snap_to_grid();
  for (size_t level = levels_.size() - 1; level > 0 && !lost_; --level) refine(levels_[level]);
  if (lost_) {
    anneal();
  } else if (measured_rows_ > 0) {
    price_idle_experts(levels_[1]);
    price_crowded_experts(levels_[1]);
  }
}

// A price that is far too high is not felt by any token, so Newton's method brings it down slowly.
bool PriceDescent::price_idle_experts(const RowSample& rows) {
  const std::span<const int32_t> idle = newton_.idle_experts(targets_);
  if (idle.empty()) return false;
  extractor_.price_idle(rows, idle, shares_, prices_);
  work_->rows_read += rows.count;
  snap_to_grid();
  return true;
}

// One that is far too low is felt by tokens, but not by those who would have to go.
void PriceDescent::price_crowded_experts(const RowSample& rows) {
  const std::span<const int32_t> crowded = newton_.crowded_experts(targets_, chance_deviation());
  if (crowded.empty()) return;
  extractor_.price_crowded(rows, crowded, shares_, prices_);
  work_->rows_read += rows.count;
  snap_to_grid();
}

// How far loads are off, as a part of their places, when prices from one sample meet another: both
// are a sample of what there could have been.
double PriceDescent::chance_deviation() const {
  const auto experts = static_cast<double>(problem_->experts);
  return std::sqrt(experts / state_.priced_by + experts / state_.rows);
}

void PriceDescent::refine(const RowSample& rows) {
  constexpr int kMostCores = 6;
  int64_t candidates = 6;
  glance(rows);
  for (int i = 0; i < kMostCores && !lost_; ++i) {
    if (i > 1) candidates *= 2;  // prices near the end of the first reach need no larger one
    extract(rows, std::min(candidates, problem_->experts / (i > 1 ? 2 : 4)));
    if (core().reach <= 1) return;  // in these units scores are alike, and tell prices nothing
    const bool stayed = descend(rows, false);
    snap_to_grid();
    if (stayed) return;
  }
}

bool PriceDescent::descend_on_all(int64_t candidates) {
  lost_ = false;  // what a sample said
  if (left_core_ && !left_coarsely_) price_crowded_experts(all());
  glance(all());
  if (!lost_) {
    extract(all(), candidates);
    left_core_ = !descend(all(), true);
  }
  if (lost_ && !annealed_) {
    anneal();
    extract(all(), candidates);
    left_core_ = !descend(all(), true);
  }
  return !left_core_;
}

void PriceDescent::extract(const RowSample& rows, int64_t candidates) {
  Units reach = extractor_.reach_for(rows, prices_, candidates);
  // After a glance prices have less far to go than it moved them.
  if (glanced_by_ > 0) reach = std::clamp(glanced_by_ * 7 / 10, (reach + 3) / 4, reach);
  glanced_by_ = 0;
  const bool all_pairs = candidates >= problem_->experts;
  extractor_.extract(rows, prices_, all_pairs ? kEverything : reach, core());
  first_temperature_ = std::max(1.0F, static_cast<float>(reach) / 9);
  std::fill_n(core().held.begin(), core().pairs(), 0);
  depth_ = 0;
  work_->rows_read += rows.count;
}

void PriceDescent::set_targets(const RowSample& rows) {
  const LoadBounds& bounds = *problem_->bounds;
  const double part = static_cast<double>(rows.count) / static_cast<double>(problem_->tokens);
  targets_.places.resize(problem_->experts);
  targets_.limit.resize(problem_->experts);
  double places = 0;
  for (int64_t e = 0; e < problem_->experts; ++e) {
    const int32_t limit = bounds.upper[e] - (problem_->padding > 0 ? 0 : bounds.lower[e]);
    targets_.places[e] = part * bounds.upper[e];
    targets_.limit[e] = part * limit;
    places += targets_.places[e];
  }
  targets_.free = std::max(0.0, places - static_cast<double>(rows.count));
  if (targets_.free < 1e-9 * places) targets_.free = 0;
}

// Newton's method at falling temperatures, in ever smaller parts of the core.
bool PriceDescent::descend(const RowSample& rows, bool is_last) {
  set_targets(rows);
  const auto count = static_cast<double>(rows.count);
  const double enough = is_last ? 0 : 0.6 * chance_imbalance(rows, problem_->experts);
  state_ = {.rows = count,
            .priced_by = priced_rows_,
            .is_last = is_last,
            .temperature = first_temperature_};
  if (count == measured_rows_ && extractor_.grid() == 1) {
    // A second core of the same rows goes on where the first was left.
    state_.temperature = std::min(state_.temperature, 4 * last_temperature_);
  }
  imbalance_ = 0;
  constexpr int kMostSteps = 60;
  for (int i = 0; i < kMostSteps; ++i) {
    // Without a glance the first step is the long one.
    const bool coarse = i == 0 && knows_curvature() && !can_glance();
    const SoftLoads loads =
        coarse ? newton_.measure_whole(core(), targets_, static_cast<float>(count / measured_rows_))
               : newton_.measure(cores_[depth_], targets_, prices_, state_.temperature);
    measured_rows_ = count;
    // A coarse step leads as far as the sample's curvature knows: prices are still the sample's.
    if (!coarse) priced_rows_ = count;
    last_temperature_ = state_.temperature;
    if (i == 0 && is_lost(loads)) {
      lost_ = true;
      return false;
    }
    if (loads.imbalance < enough || (is_last && is_enough(loads))) return true;
    const bool finer_than_grid = 8 * state_.temperature < static_cast<float>(extractor_.grid());
    if (finer_than_grid || (state_.temperature <= 1 && i > 0)) {
      imbalance_ = newton_.whole_imbalance(targets_);
      return true;
    }
    ++work_->newton_steps;
    const bool went_up = loads.dual > state_.comparable_dual;  // the last step was too long
    if (went_up && state_.shortened < 3) {
      shorten_step();
      ++state_.shortened;
      continue;
    }
    state_.shortened = 0;
    if (!step_within_reach()) {
      left_coarsely_ = coarse;
      return false;
    }
    if (!cool_down(loads, coarse, went_up)) return true;
    if (is_last) narrow_down(state_.temperature);
  }
  return true;
}

// False: nothing leads on at this temperature or another.
bool PriceDescent::cool_down(const SoftLoads& loads, bool coarse, bool stuck) {
  // What is out of balance at this temperature would be more so at a lower one.
  const double share = loads.imbalance / state_.rows;
  const double least = share > 0.1 ? 1 : share > 0.04 ? 0.5 : 0.25;
  state_.cooler = coarse ? 0.5 : std::clamp(0.5 * moved_, least, 1.0);
  const bool futile = targets_.free > 0 && loads.imbalance > 0.8 * state_.imbalance;
  state_.futile = futile ? state_.futile + 1 : 0;
  state_.imbalance = loads.imbalance;
  if (state_.futile >= 3 || stuck) {
    if (++state_.given_up > 1) return false;
    state_.cooler = 0.4;
    state_.futile = 0;
  }
  state_.temperature = std::max(1.0F, state_.temperature * static_cast<float>(state_.cooler));
  // The dual can be compared at one temperature; logarithms in it are good to four digits.
  const bool comparable = state_.cooler == 1 && targets_.free == 0 && !coarse;
  state_.comparable_dual = comparable ? loads.dual + 1e-4 * state_.rows * state_.temperature
                                      : std::numeric_limits<double>::max();
  return true;
}

// On all tokens: until exchanges can do the rest, or nothing gets better.
bool PriceDescent::is_enough(const SoftLoads& loads) {
  const auto count = static_cast<double>(all().count);
  if (loads.imbalance > 0.03 * count) return false;
  imbalance_ = newton_.whole_imbalance(targets_);
  if (imbalance_ <= std::max(0.2 * static_cast<double>(problem_->experts), 0.001 * count)) {
    return true;
  }
  // Whole tokens say little while shares at one temperature are still getting even.
  const bool evens_out = state_.cooler == 1 && loads.imbalance < 0.8 * state_.imbalance;
  if (static_cast<double>(imbalance_) < 0.8 * static_cast<double>(state_.least_imbalance)) {
    state_.stalled = 0;
  } else if (!evens_out && (state_.cooler < 0.6 || loads.imbalance < 0.01 * count)) {
    ++state_.stalled;
  }
  state_.least_imbalance = std::min(state_.least_imbalance, imbalance_);
  return state_.stalled >= 2;
}

// A Newton step. False: two prices move apart farther than the core is exact.
bool PriceDescent::step_within_reach() {
  before_ = prices_;
  moved_ = newton_.step(prices_);
  // An expert that is forbidden to too many tokens would go down without end.
  const Units highest = extractor_.highest_price();
  for (Units& price : prices_) price = std::clamp(price, -highest, 2 * highest);
  // A sample's prices need not be exact; those of all tokens have exchanges before them.
  const double room = (state_.is_last ? 0.85 : 1.25) * static_cast<double>(core().reach);
  const auto after = static_cast<double>(spread(core().prices, prices_));
  if (after <= room) return true;
  // Beyond the reach loads are not known, but a step says well enough where to look next.
  const double far = 2 * room;
  const auto was = static_cast<double>(spread(core().prices, before_));
  const double part = after <= far ? 1 : std::max(0.2, (far - was) / (after - was));
  for (size_t e = 0; e < prices_.size(); ++e) {
    prices_[e] = before_[e] + std::llrint(part * static_cast<double>(prices_[e] - before_[e]));
  }
  return false;
}

Core& PriceDescent::part_with_room(Units room) {
  const auto room_in = [&](const Core& core) { return core.reach - spread(core.prices, prices_); };
  while (depth_ > 0 && room_in(cores_[depth_]) < room) --depth_;
  return cores_[depth_];
}

void PriceDescent::shorten_step() {
  for (size_t e = 0; e < prices_.size(); ++e) {
    prices_[e] = before_[e] + (prices_[e] - before_[e]) / 4;
  }
}

// Shares beyond eight temperatures are nothing: a part of the core within that reach will do, as
// long as prices do not leave it.
void PriceDescent::narrow_down(float temperature) {
  const auto wanted = static_cast<Units>(8 * temperature) + 1;
  const Core& from = part_with_room(wanted / 2);
  const Units room = from.reach - spread(from.prices, prices_);
  if (room < wanted || static_cast<double>(wanted) > 0.5 * static_cast<double>(from.reach)) return;
  if (depth_ == kMostDepth) return;
  take_part(from, prices_, wanted, cores_[depth_ + 1]);
  ++depth_;
}

}  // namespace ballast::assignment
