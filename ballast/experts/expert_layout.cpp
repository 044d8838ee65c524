// SPDX-License-Identifier: Apache-2.0
#include "ballast/experts/expert_layout.h"

#include <algorithm>
#include <numeric>

namespace ballast::experts {

ExpertLayout choose_layout(const std::vector<int64_t>& rows_of_expert, int64_t weights) {
  if (rows_of_expert.empty()) return ExpertLayout::kGroupedRows;
  // From this many operations an expert's product fills a GPU by itself, and the rows that fill up
  // a block cost more than they spare (H200, 8 experts of 2048 rows: from 1.1 times the rows on).
  constexpr double kLargeProduct = 1e10, kMostFilled = 1.1;
  // Below that, they cost less than the grouped kernel's separate pass over the gradients of all
  // weights, up to about as many an expert (H200, 128 experts of 128 rows, filled up to 360: 0.86
  // of it).
  constexpr double kMostExtra = 256;
  const auto rows = static_cast<double>(
      std::accumulate(rows_of_expert.begin(), rows_of_expert.end(), int64_t{0}));
  const double mean = rows / static_cast<double>(rows_of_expert.size());
  const auto block = static_cast<double>(rows_of_block(rows_of_expert));
  const bool is_large = 2 * mean * static_cast<double>(weights) >= kLargeProduct;
  const bool fills_little = is_large ? block <= kMostFilled * mean : block - mean <= kMostExtra;
  return fills_little ? ExpertLayout::kEqualBlocks : ExpertLayout::kGroupedRows;
}

bool has_equal_blocks(const ExpertRows& rows) {
  return !rows.counts.empty() &&
         std::ranges::all_of(rows.counts, [&](int64_t n) { return n == rows.counts.front(); });
}

ExpertRows with_counts_if_worth(const ExpertRows& rows, int64_t num_rows, int64_t weights) {
  // The wait is some 0.03 ms, one product of this many operations as well; a layer has six or more.
  constexpr double kWorthWaiting = 2e10;
  const double operations = 2 * static_cast<double>(num_rows) * static_cast<double>(weights);
  if (!rows.counts.empty() || !rows.ends.defined() || operations < kWorthWaiting) return rows;
  return ExpertRows(rows.ends, rows.counts_on_host());
}

int64_t rows_of_block(const std::vector<int64_t>& rows_of_expert) {
  constexpr int64_t kTile = 16;
  const int64_t most = rows_of_expert.empty() ? 0 : *std::ranges::max_element(rows_of_expert);
  return (most + kTile - 1) / kTile * kTile;
}

}  // namespace ballast::experts
