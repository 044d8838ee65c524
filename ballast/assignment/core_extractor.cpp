// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/core_extractor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "ballast/assignment/row_blocks.h"
#include "ballast/system/error.h"
#include "ballast/system/parallel.h"

namespace ballast::assignment {
namespace {

constexpr int64_t kProbes = 24;  // rows in which reach_for looks

// The i-th of a few rows, an odd number apart (see PriceDescent::plan_levels).
int64_t probe_row(int64_t i, int64_t probes, int64_t rows) {
  return i * (rows / probes | 1) % rows;
}

}  // namespace
void CoreExtractor::begin(const ActiveProblem& problem, bool wide, size_t threads) {
  threads_ = static_cast<int64_t>(threads == 0 ? num_cores() : std::min(threads, num_cores()));
  problem_ = &problem;
  const FixedPoint narrow = narrow_units(problem.largest_magnitude);
  wide_ = wide || problem.has_forbidden || !narrow.fits_float;
  const FixedPoint units =
      wide_ ? wide_units(problem.largest_magnitude, problem.experts, problem.has_forbidden)
            : narrow;
  units_per_score_ = units.per_score;
  highest_price_ = units.highest_price;
  scan_rows_ = scan_rows_with(scan_instruction_sets().front());
  constexpr int64_t kVectorOverhang = 16;
  expert_.resize(problem.experts + kVectorOverhang);
  deficit_.resize(problem.experts + kVectorOverhang);
  wide_deficit_.resize(problem.experts);
  prices_.resize(problem.experts);
  gaps_.reserve(kProbes);
  const std::vector<int32_t>& upper = problem.bounds->upper;
  has_closed_ = std::find(upper.begin(), upper.end(), 0) != upper.end();
  merge_ = has_equal_rows();
  grid_ = find_grid();
}

Units CoreExtractor::find_grid() const {
  uint64_t bits = 0;
  const int64_t probes = std::min<int64_t>(problem_->tokens, 64);
  for (int64_t i = 0; i < probes; ++i) {
    const float* row = problem_->row(probe_row(i, probes, problem_->tokens));
    for (int64_t e = 0; e < problem_->experts; ++e) {
      if (!std::isfinite(row[e])) continue;
      bits |= static_cast<uint64_t>(static_cast<Units>(row[e] * units_per_score_));
    }
  }
  return bits == 0 ? 1 : Units{1} << std::countr_zero(bits);
}

// Whether several of a few rows are equal: then many of all are.
bool CoreExtractor::has_equal_rows() {
  constexpr int64_t kLooks = 64;
  const int64_t probes = std::min(problem_->tokens, kLooks);
  const auto row = [&](int64_t i) { return problem_->row(probe_row(i, probes, problem_->tokens)); };
  const auto less = [&](int64_t a, int64_t b) {
    return std::lexicographical_compare(row(a), row(a) + problem_->experts, row(b),
                                        row(b) + problem_->experts);
  };
  int64_t order[kLooks];
  std::iota(order, order + probes, 0);
  std::sort(order, order + probes, less);
  int64_t equal = 0;
  for (int64_t i = 1; i < probes; ++i) {
    equal +=
        std::equal(row(order[i]), row(order[i]) + problem_->experts, row(order[i - 1])) ? 1 : 0;
  }
  return equal >= 4;
}

int32_t CoreExtractor::scan_wide(const float* row, const std::vector<Units>& prices, Units reach) {
  Units best = std::numeric_limits<Units>::min();
  for (int64_t e = 0; e < problem_->experts; ++e) {
    if (!std::isfinite(row[e]) || problem_->bounds->upper[e] == 0) continue;
    const Units profit = static_cast<Units>(row[e] * units_per_score_) - prices[e];
    best = std::max(best, profit);
  }
  int32_t found = 0;
  for (int64_t e = 0; e < problem_->experts; ++e) {
    if (!std::isfinite(row[e]) || problem_->bounds->upper[e] == 0) continue;
    const Units profit = static_cast<Units>(row[e] * units_per_score_) - prices[e];
    if (best - profit > reach) continue;
    expert_[found] = static_cast<int32_t>(e);
    wide_deficit_[found++] = best - profit;
  }
  return found;
}

// Fills expert_ and wide_deficit_; returns how many.
int32_t CoreExtractor::scan(const float* row, const std::vector<Units>& prices, Units reach) {
  if (wide_) return scan_wide(row, prices, reach);
  ScannedRow scanned;
  scan_rows_(narrow_scan(reach), row, 0, 1, &scanned, expert_.data(), deficit_.data());
  int32_t kept = 0;
  for (int32_t i = 0; i < scanned.found; ++i) {
    if (problem_->bounds->upper[expert_[i]] == 0) continue;
    expert_[kept] = expert_[i];
    wide_deficit_[kept++] = deficit_[i];
  }
  return kept;
}

CandidateScan CoreExtractor::narrow_scan(Units reach) const {
  return {.prices = prices_.data(),
          .experts = problem_->experts,
          .units_per_score = static_cast<float>(units_per_score_),
          .reach = std::min<Units>(reach, std::numeric_limits<int32_t>::max())};
}

Units CoreExtractor::reach_for(const RowSample& rows, const std::vector<Units>& prices,
                               int64_t candidates) {
  const int64_t probes = std::min(rows.count, kProbes);
  gaps_.clear();
  for (int64_t e = 0; e < problem_->experts; ++e) prices_[e] = static_cast<int32_t>(prices[e]);
  for (int64_t i = 0; i < probes; ++i) {
    const float* row = problem_->row(probe_row(i, probes, rows.count) * rows.stride);
    const int32_t found = scan(row, prices, std::numeric_limits<Units>::max() / 2);
    if (found == 0) continue;
    const auto first_out = wide_deficit_.begin() + std::min<int64_t>(found - 1, candidates);
    std::nth_element(wide_deficit_.begin(), first_out, wide_deficit_.begin() + found);
    gaps_.push_back(*first_out);
  }
  if (gaps_.empty()) return 1;
  const auto middle = gaps_.begin() + static_cast<int64_t>(gaps_.size() / 2);
  std::nth_element(gaps_.begin(), middle, gaps_.end());
  return *middle + 1;
}

// With the best profit of each row at the other prices, the expert's share of rows decides.
void CoreExtractor::price_idle(const RowSample& rows, std::span<const int32_t> idle,
                               std::span<const double> shares, std::vector<Units>& prices) {
  std::vector<Units>& best = row_values_;
  best.resize(rows.count);
  const auto units = [&](const float* row, int64_t e) {
    return static_cast<Units>(std::max<double>(row[e] * units_per_score_, -1e17));
  };
  for (int64_t i = 0; i < rows.count; ++i) {
    const float* row = problem_->row(i * rows.stride);
    best[i] = std::numeric_limits<Units>::min() / 2;
    for (int64_t e = 0; e < problem_->experts; ++e) {
      if (problem_->bounds->upper[e] > 0) best[i] = std::max(best[i], units(row, e) - prices[e]);
    }
  }
  for (const int32_t e : idle) {
    gains_.resize(rows.count);
    for (int64_t i = 0; i < rows.count; ++i) {
      gains_[i] = units(problem_->row(i * rows.stride), e) - best[i];
    }
    const auto wanted = static_cast<int64_t>(shares[e] * static_cast<double>(rows.count));
    const auto last = gains_.begin() + std::min(rows.count - 1, wanted);
    std::nth_element(gains_.begin(), last, gains_.end(), std::greater<>());
    prices[e] = std::min(prices[e], *last);
  }
}

// The best profit of each row elsewhere, and again the expert's share of rows decides.
void CoreExtractor::price_crowded(const RowSample& rows, int32_t expert, double share,
                                  std::vector<Units>& prices) {
  if (wide_) return;
  for (int64_t e = 0; e < problem_->experts; ++e) prices_[e] = static_cast<int32_t>(prices[e]);
  prices_[expert] = static_cast<int32_t>(highest_price_);
  const auto units = [&](const float* row, int64_t e) {
    return static_cast<Units>(row[e] * static_cast<float>(units_per_score_));
  };
  gains_.resize(rows.count);
  std::array<ScannedRow, kScanBlock> scanned;
  for (int64_t first = 0; first < rows.count; first += kScanBlock) {
    const int64_t count = std::min(kScanBlock, rows.count - first);
    scan_rows_(narrow_scan(0), problem_->row(first * rows.stride),
               problem_->row_stride * rows.stride, count, scanned.data(), ties_.data(),
               ties_.data() + ties_.size() / 2);
    for (int64_t i = 0; i < count; ++i) {
      const float* row = problem_->row((first + i) * rows.stride);
      const int32_t other = scanned[i].first;
      gains_[first + i] = units(row, expert) - (units(row, other) - prices_[other]);
    }
  }
  const auto wanted = static_cast<int64_t>(share * static_cast<double>(rows.count));
  const auto last = gains_.begin() + std::min(rows.count - 1, wanted);
  std::nth_element(gains_.begin(), last, gains_.end(), std::greater<>());
  prices[expert] = std::clamp(*last, prices[expert], highest_price_ - 1);
}

void CoreExtractor::extract(const RowSample& rows, const std::vector<Units>& prices, Units reach,
                            Core& core) {
  core.clear(prices, reach);
  for (int64_t e = 0; e < problem_->experts; ++e) prices_[e] = static_cast<int32_t>(prices[e]);
  best_expert_.resize(rows.count);
  group_of_.resize(rows.count);
  if (wide_ || merge_ || has_closed_) {
    extract_merging(rows, prices, reach, core);
  } else {
    extract_plainly(rows, reach, core);
  }
}

// Rows are divided among threads; what each found is put together in the rows' order.
void CoreExtractor::extract_plainly(const RowSample& rows, Units reach, Core& core) {
  const CandidateScan scan = narrow_scan(reach);
  const int64_t useful = rows.count * problem_->experts / kWorthAThread;
  const auto shares = static_cast<size_t>(std::clamp<int64_t>(useful, 1, threads_));
  if (harvests_.size() < shares) harvests_.resize(shares);
  const int64_t blocks = (rows.count + kScanBlock - 1) / kScanBlock;
  const auto begin_of = [&](size_t share) {
    return std::min(rows.count, blocks * static_cast<int64_t>(share) /
                                    static_cast<int64_t>(shares) * kScanBlock);
  };
  const auto work = [&](size_t share) {
    harvest(scan, rows, begin_of(share), begin_of(share + 1), harvests_[share]);
  };
  if (shares == 1) {
    work(0);
  } else {
    parallel_for(shares, shares, work);
  }
  core.begin.resize(rows.count + 1);
  int32_t groups = 0;
  int32_t pairs = 0;
  for (size_t share = 0; share < shares; ++share) {
    const Harvest& from = harvests_[share];
    core.make_room(pairs + from.pairs);
    std::copy_n(from.expert.begin(), from.pairs, core.expert.begin() + pairs);
    std::copy_n(from.deficit.begin(), from.pairs, core.deficit.begin() + pairs);
    for (int64_t i = begin_of(share); i < begin_of(share + 1); ++i) {
      const ScannedRow& row = from.rows[i - begin_of(share)];
      const bool open = row.found > 1;
      core.settled[row.first] += open ? 0 : 1;
      best_expert_[i] = row.first;
      group_of_[i] = open ? groups : -1;
      pairs += open ? row.found : 0;
      groups += open ? 1 : 0;
      core.begin[groups] = pairs;
    }
  }
  core.begin.resize(groups + 1);
  core.size.assign(groups, 1);
}

void CoreExtractor::harvest(const CandidateScan& scan, const RowSample& rows, int64_t begin,
                            int64_t end, Harvest& into) const {
  const auto most = static_cast<size_t>(kScanBlock * problem_->experts + 16);
  into.rows.resize(end - begin + kScanBlock);
  into.pairs = 0;
  for (int64_t first = begin; first < end; first += kScanBlock) {
    if (into.expert.size() < into.pairs + most) {
      const size_t room = std::max(into.expert.capacity(), 2 * into.pairs + most);
      into.expert.resize(room);
      into.deficit.resize(room);
    }
    into.pairs +=
        scan_rows_(scan, problem_->row(first * rows.stride), problem_->row_stride * rows.stride,
                   std::min(kScanBlock, end - first), &into.rows[first - begin],
                   &into.expert[into.pairs], &into.deficit[into.pairs]);
  }
}

void CoreExtractor::reserve(int64_t pairs) {
  gains_.reserve(problem_->tokens);
  ties_.resize(2 * (kScanBlock * problem_->experts + 16));
  harvests_.resize(std::max<size_t>(harvests_.size(), threads_));
  for (Harvest& harvest : harvests_) {
    harvest.expert.reserve(pairs / threads_);
    harvest.deficit.reserve(pairs / threads_);
    harvest.rows.reserve(problem_->tokens / threads_ + 2 * kScanBlock);
  }
}

void CoreExtractor::extract_merging(const RowSample& rows, const std::vector<Units>& prices,
                                    Units reach, Core& core) {
  table_.assign(1024, -1);
  hash_.clear();
  int32_t group = -1;
  for (int64_t i = 0; i < rows.count; ++i) {
    const float* row = problem_->row(i * rows.stride);
    // Equal rows often follow each other.
    const bool repeats =
        i > 0 && std::equal(row, row + problem_->experts, row - problem_->row_stride * rows.stride);
    if (!repeats) {
      const int32_t found = scan(row, prices, reach);
      if (found == 0) {
        fail("all experts with places are forbidden to one token: none can be assigned");
      }
      group = found > 1 ? group_of_candidates(found, core) : -1;
    }
    best_expert_[i] = expert_[0];
    group_of_[i] = group;
    ++(group < 0 ? core.settled[expert_[0]] : core.size[group]);
  }
}

// The group with the candidates just scanned, which is made if there is none.
int32_t CoreExtractor::group_of_candidates(int32_t found, Core& core) {
  uint64_t mixed = 0x9e3779b97f4a7c15;
  for (int32_t i = 0; i < found; ++i) {
    mixed ^= static_cast<uint64_t>(wide_deficit_[i]) + (static_cast<uint64_t>(expert_[i]) << 40);
    mixed *= 0xff51afd7ed558ccd;
    mixed ^= mixed >> 32;
  }
  const auto hash = static_cast<uint32_t>(mixed);
  if (2 * hash_.size() >= table_.size()) grow_table();
  size_t slot = hash & (table_.size() - 1);
  for (; table_[slot] >= 0; slot = (slot + 1) & (table_.size() - 1)) {
    const int32_t group = table_[slot];
    const int32_t first = core.begin[group];
    if (hash_[group] == hash && core.begin[group + 1] - first == found &&
        std::equal(expert_.begin(), expert_.begin() + found, core.expert.begin() + first) &&
        std::equal(wide_deficit_.begin(), wide_deficit_.begin() + found,
                   core.deficit.begin() + first)) {
      return group;
    }
  }
  const int32_t group = core.groups();
  table_[slot] = group;
  hash_.push_back(hash);
  const int32_t first = core.pairs();
  if (static_cast<int32_t>(core.expert.size()) < first + found) {
    core.make_room(int64_t{2} * first + found);
  }
  std::copy_n(expert_.begin(), found, core.expert.begin() + first);
  std::copy_n(wide_deficit_.begin(), found, core.deficit.begin() + first);
  core.begin.push_back(first + found);
  core.size.push_back(0);
  return group;
}

void CoreExtractor::grow_table() {
  table_.assign(4 * table_.size(), -1);
  for (size_t group = 0; group < hash_.size(); ++group) {
    size_t slot = hash_[group] & (table_.size() - 1);
    while (table_[slot] >= 0) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = static_cast<int32_t>(group);
  }
}

}  // namespace ballast::assignment
