// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ballast/assignment/active_problem.h"
#include "ballast/assignment/candidate_scan.h"
#include "ballast/assignment/core.h"

namespace ballast::assignment {

// Every stride-th row of a problem, `count` of them.
struct RowSample {
  int64_t count = 0, stride = 1;
};

// Reads rows as integers and finds what is open in them at given prices.
class CoreExtractor {
 public:
  // Chooses the units. `wide`: wide_units instead of narrow_units (fixed_point.h), in slower
  // arithmetic, for scores whose range is too large for the narrow ones; forbidden pairs need it.
  void begin(const ActiveProblem& problem, bool wide, size_t threads);

  void reserve(int64_t pairs);  // room for cores of that many

  bool is_wide() const { return wide_; }
  double units_per_score() const { return units_per_score_; }
  Units highest_price() const { return highest_price_; }  // of an expert that gets no tokens

  // All scores seen in a few rows are multiples of this: then there are best prices that are, too.
  Units grid() const { return grid_; }

  // The reach within which half of the tokens have this many candidates or more.
  Units reach_for(const RowSample& rows, const std::vector<Units>& prices, int64_t candidates);

  // Lowers the price of experts that hardly any row wants to where each would get its share.
  void price_idle(const RowSample& rows, std::span<const int32_t> idle,
                  std::span<const double> shares, std::vector<Units>& prices);

  // Raises the prices of experts that far too many rows want to where each would get its share, one
  // pass over the rows. REQUIRES: prices from 0 on. In wide units it does nothing.
  void price_crowded(const RowSample& rows, std::span<const int32_t> crowded,
                     std::span<const double> shares, std::vector<Units>& prices);

  // One pass over the rows: how many have each expert as their best; those that have several are
  // shared out. REQUIRES: not is_wide(), prices from 0 on.
  std::span<const double> best_loads(const RowSample& rows, const std::vector<Units>& prices);

  // One pass over the rows. Afterwards best_expert() and group_of() describe each row of the
  // sample.
  void extract(const RowSample& rows, const std::vector<Units>& prices, Units reach, Core& core);

  bool merges() const { return merge_; }                                // many rows are equal
  bool makes_groups() const { return wide_ || merge_ || has_closed_; }  // of several rows, or may
  const std::vector<int32_t>& best_expert() const { return best_expert_; }  // [rows]
  const std::vector<int32_t>& group_of() const { return group_of_; }        // [rows], -1: settled

 private:
  struct Harvest {  // what was found in a range of rows
    std::vector<ScannedRow> rows;
    std::vector<int32_t> expert, deficit;
    int64_t first = 0, count = 0;  // of the rows
    size_t pairs = 0;
  };
  struct Place {  // where the next group with as many candidates goes
    int32_t group = 0, pair = 0;
  };
  static constexpr int32_t kMostAlike = 32;  // candidates; groups with more are not told apart
  int32_t scan(const float* row, const std::vector<Units>& prices, Units reach);
  int32_t scan_wide(const float* row, const std::vector<Units>& prices, Units reach);
  CandidateScan narrow_scan(Units reach) const;
  bool has_equal_rows();
  Units find_grid() const;
  void extract_plainly(const RowSample& rows, Units reach, Core& core);
  void take_prices(const std::vector<Units>& prices);
  std::span<const Harvest> harvest_all(const RowSample& rows, Units reach);
  void harvest(const CandidateScan& scan, const RowSample& rows, int64_t begin, int64_t end,
               Harvest& into) const;
  void make_places(std::span<const Harvest> harvests, Core& core);
  void place_rows(const Harvest& from, Core& core);
  static void copy_pairs(const Harvest& from, int32_t first, int32_t count, int32_t to, Core& core);
  void extract_merging(const RowSample& rows, const std::vector<Units>& prices, Units reach,
                       Core& core);
  int32_t group_of_candidates(int32_t found, Core& core);
  void grow_table();

  const ActiveProblem* problem_ = nullptr;
  bool wide_ = false;
  bool merge_ = false;       // tokens with equal candidates are worth looking for
  bool has_closed_ = false;  // some experts take no tokens
  double units_per_score_ = 1;
  Units highest_price_ = 0;
  Units grid_ = 1;
  ScanRows scan_rows_ = nullptr;
  std::vector<int32_t> prices_;  // [E] for the narrow scan
  std::vector<int32_t> expert_;  // candidates of one row
  std::vector<int32_t> deficit_;
  std::vector<Units> wide_deficit_;
  std::vector<Harvest> harvests_;             // one a thread
  std::array<Place, kMostAlike + 1> places_;  // by the number of candidates
  std::vector<int32_t> source_;               // [groups] where a group's pairs were harvested
  int64_t threads_ = 1;
  std::vector<Units> gaps_, row_values_, gains_;
  std::vector<int32_t> best_expert_, group_of_;
  std::vector<double> best_loads_;  // [E]
  std::vector<int32_t> table_;      // groups by the hash of their candidates, -1: free
  std::vector<uint32_t> hash_;      // [groups]
};

}  // namespace ballast::assignment
