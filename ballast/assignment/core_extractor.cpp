// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/core_extractor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
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

// The one that `n` are below or beside. Reorders `values`.
Units nth_smallest(std::span<Units> values, int64_t n) {
  constexpr int64_t kFew =
      12;  // that one look at each keeps sorted faster than nth_element finds n
  if (n >= kFew) {
    std::nth_element(values.begin(), values.begin() + n, values.end());
    return values[n];
  }
  std::array<Units, kFew> smallest;
  smallest.fill(std::numeric_limits<Units>::max());
  for (const Units value : values) {
    if (value >= smallest[n]) continue;
    int64_t i = n;
    for (; i > 0 && smallest[i - 1] > value; --i) smallest[i] = smallest[i - 1];
    smallest[i] = value;
  }
  return smallest[n];
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
  scan_rows_(narrow_scan(reach), row, 0, 1, {&scanned, expert_.data(), deficit_.data()});
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
  take_prices(prices);
  for (int64_t i = 0; i < probes; ++i) {
    const float* row = problem_->row(probe_row(i, probes, rows.count) * rows.stride);
    const int32_t found = scan(row, prices, std::numeric_limits<Units>::max() / 2);
    if (found == 0) continue;
    const int64_t first_out = std::min<int64_t>(found - 1, candidates);
    gaps_.push_back(nth_smallest(std::span(wide_deficit_).first(found), first_out));
  }
  if (gaps_.empty()) return 1;
  const auto middle = gaps_.begin() + static_cast<int64_t>(gaps_.size() / 2);
  std::nth_element(gaps_.begin(), middle, gaps_.end());
  return *middle + 1;
}

void CoreExtractor::extract(const RowSample& rows, const std::vector<Units>& prices, Units reach,
                            Core& core) {
  core.clear(prices, reach);
  take_prices(prices);
  best_expert_.resize(rows.count);
  group_of_.resize(rows.count);
  if (makes_groups()) {
    extract_merging(rows, prices, reach, core);
  } else {
    extract_plainly(rows, reach, core);
  }
}

void CoreExtractor::take_prices(const std::vector<Units>& prices) {
  for (int64_t e = 0; e < problem_->experts; ++e) prices_[e] = static_cast<int32_t>(prices[e]);
}

std::span<const double> CoreExtractor::best_loads(const RowSample& rows,
                                                  const std::vector<Units>& prices) {
  take_prices(prices);
  best_loads_.assign(problem_->experts, 0.0);
  for (const Harvest& from : harvest_all(rows, 0)) {
    const int32_t* tied = from.expert.data();
    for (int64_t i = 0; i < from.count; ++i) {
      const ScannedRow& row = from.rows[i];
      if (row.found == 1) {
        best_loads_[row.first] += 1;
        continue;
      }
      for (int32_t k = 0; k < row.found; ++k) best_loads_[*tied++] += 1.0 / row.found;
    }
  }
  return best_loads_;
}

// Rows are divided among threads; what each found is put together in the rows' order.
void CoreExtractor::extract_plainly(const RowSample& rows, Units reach, Core& core) {
  const std::span<const Harvest> harvests = harvest_all(rows, reach);
  make_places(harvests, core);
  for (const Harvest& harvest : harvests) place_rows(harvest, core);
}

std::span<const CoreExtractor::Harvest> CoreExtractor::harvest_all(const RowSample& rows,
                                                                   Units reach) {
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
  return std::span(harvests_).first(shares);
}

// Groups with as many candidates lie together: loops over candidates then end where the processor
// expects them to.
void CoreExtractor::make_places(std::span<const Harvest> harvests, Core& core) {
  std::array<int32_t, kMostAlike + 1> groups_with = {};
  int64_t pairs = 0;
  int32_t rows = 0;
  for (const Harvest& from : harvests) {
    for (int64_t i = 0; i < from.count; ++i)
      ++groups_with[std::min(from.rows[i].found, kMostAlike)];
    pairs += static_cast<int64_t>(from.pairs);
    rows += static_cast<int32_t>(from.count);
  }
  int32_t group = 0;
  int32_t pair = 0;
  for (int32_t candidates = 2; candidates <= kMostAlike; ++candidates) {
    places_[candidates] = {.group = group, .pair = pair};
    group += groups_with[candidates];
    pair += candidates * groups_with[candidates];
  }
  places_[1] = {.group = group, .pair = 0};  // settled rows, behind all groups: of no use
  source_.resize(rows);
  core.make_room(pairs);
  core.begin.resize(group + 1);
  core.begin[group] = static_cast<int32_t>(pairs);
  core.size.assign(group, 1);
}

void CoreExtractor::place_rows(const Harvest& from, Core& core) {
  const int64_t first = from.first;
  const auto before = places_;
  int32_t pair = 0;
  for (int64_t i = 0; i < from.count; ++i) {
    const ScannedRow& row = from.rows[i];
    const bool open = row.found > 1;
    const int32_t group = places_[std::min(row.found, kMostAlike)].group++;
    source_[group] = pair;
    pair += open ? row.found : 0;
    core.settled[row.first] += open ? 0 : 1;
    best_expert_[first + i] = row.first;
    group_of_[first + i] = open ? group : -1;
    if (row.found >= kMostAlike) {
      core.begin[group] = places_[kMostAlike].pair;
      places_[kMostAlike].pair += row.found;
    }
  }
  for (int32_t candidates = 2; candidates < kMostAlike; ++candidates) {
    Place& to = places_[candidates];
    for (int32_t group = before[candidates].group; group < to.group; ++group) {
      core.begin[group] = to.pair;
      copy_pairs(from, source_[group], candidates, to.pair, core);
      to.pair += candidates;
    }
  }
  for (int32_t group = before[kMostAlike].group; group < places_[kMostAlike].group; ++group) {
    const bool is_last = group + 1 == places_[kMostAlike].group;
    const int32_t end = is_last ? places_[kMostAlike].pair : core.begin[group + 1];
    copy_pairs(from, source_[group], end - core.begin[group], core.begin[group], core);
  }
}

void CoreExtractor::copy_pairs(const Harvest& from, int32_t first, int32_t count, int32_t to,
                               Core& core) {
  const int32_t* const expert = from.expert.data() + first;
  const int32_t* const deficit = from.deficit.data() + first;
  for (int32_t k = 0; k < count; ++k) {
    core.expert[to + k] = expert[k];
    core.deficit[to + k] = deficit[k];
  }
}

void CoreExtractor::harvest(const CandidateScan& scan, const RowSample& rows, int64_t begin,
                            int64_t end, Harvest& into) const {
  const auto most = static_cast<size_t>(kScanBlock * problem_->experts + 16);
  into.rows.resize(end - begin + kScanBlock);
  into.first = begin;
  into.count = end - begin;
  into.pairs = 0;
  for (int64_t first = begin; first < end; first += kScanBlock) {
    if (into.expert.size() < into.pairs + most) {
      const size_t room = std::max(into.expert.capacity(), 2 * into.pairs + most);
      into.expert.resize(room);
      into.deficit.resize(room);
    }
    into.pairs += scan_rows_(
        scan, problem_->row(first * rows.stride), problem_->row_stride * rows.stride,
        std::min(kScanBlock, end - first),
        {&into.rows[first - begin], &into.expert[into.pairs], &into.deficit[into.pairs]});
  }
}

void CoreExtractor::reserve(int64_t pairs) {
  gains_.reserve(problem_->tokens);
  row_values_.reserve(problem_->tokens);
  source_.reserve(problem_->tokens);
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
