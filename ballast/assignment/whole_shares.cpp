// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/whole_shares.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "ballast/assignment/lanes.h"
#include "ballast/assignment/row_blocks.h"
#include "ballast/system/vector_clones.h"

namespace ballast::assignment {
namespace {

constexpr float kNone = std::numeric_limits<float>::lowest();  // a column that only fills a vector

struct RowRange {
  const float* scores;
  int64_t row_stride, experts, padded, count;
};

// Adds each expert's share of each row to `soft`, and one to the best expert's `best`. Shares of
// every `every`-th row, from `first` on, go to `sample`.
BALLAST_VECTOR_CLONES
void share_rows(const RowRange& rows, const float* price, float per_score, int64_t first,
                int64_t every, float* sample, float* soft, int32_t* best) {
  alignas(64) float share[WholeShares::kMostExperts];
  for (int64_t row = 0; row < rows.count; ++row) {
    const float* const score = rows.scores + row * rows.row_stride;
    for (int64_t e = 0; e < rows.experts; ++e) share[e] = score[e];
    for (int64_t e = rows.experts; e < rows.padded; ++e) share[e] = kNone;
    Floats highest = all_lanes(kNone);
    for (int64_t e = 0; e < rows.padded; e += kLanes) {
      const Floats profit = load_lanes(share + e) - load_lanes(price + e);
      store_lanes(profit, share + e);
      highest = larger(highest, profit);
    }
    const float most = largest_of(highest);
    int64_t at = 0;
    while (at + 1 < rows.experts && share[at] != most) ++at;
    ++best[at];
    Floats sum = {};
    for (int64_t e = 0; e < rows.padded; e += kLanes) {
      const Floats s = exp2_of((load_lanes(share + e) - most) * per_score);
      store_lanes(s, share + e);
      sum += s;
    }
    const float normal = 1.0F / sum_of(sum);
    for (int64_t e = 0; e < rows.padded; e += kLanes) {
      const Floats s = load_lanes(share + e) * normal;
      store_lanes(load_lanes(soft + e) + s, soft + e);
      store_lanes(s, share + e);
    }
    if (row >= first && (row - first) % every == 0) {
      std::memcpy(sample, share, static_cast<size_t>(rows.padded) * sizeof(float));
      sample += rows.padded;
    }
  }
}

// From column a / 64 * 64 on, row `a` of the sum over samples of diag(share) - share share^T.
BALLAST_VECTOR_CLONES
void curve_row(const float* sample, int64_t samples, int64_t padded, int64_t a, float weight,
               float* row) {
  constexpr int64_t kTogether = 4;  // vectors whose sums stay in registers
  for (int64_t e = a / (kTogether * kLanes) * kTogether * kLanes; e < padded;
       e += kTogether * kLanes) {
    const int64_t vectors = std::min(kTogether, (padded - e) / kLanes);
    Floats sums[kTogether] = {};
    for (int64_t i = 0; i < samples; ++i) {
      const float* const share = sample + i * padded;
      const float s = share[a];
      for (int64_t v = 0; v < kTogether; ++v) {
        if (v < vectors) sums[v] -= load_lanes(share + e + v * kLanes) * s;
      }
    }
    for (int64_t v = 0; v < vectors; ++v) store_lanes(sums[v] * weight, row + e + v * kLanes);
  }
  float own = 0;
  for (int64_t i = 0; i < samples; ++i) own += sample[i * padded + a];
  row[a] += own * weight;
}

}  // namespace

void WholeShares::reserve(const ActiveProblem& problem) {
  if (problem.experts > kMostExperts) return;
  const int64_t padded = (problem.experts + kLanes - 1) / kLanes * kLanes;
  price_.reserve(padded);
  soft_.reserve(num_row_blocks(problem) * padded);
  counts_.reserve(num_row_blocks(problem) * padded);
  sample_.reserve(std::min(problem.tokens, 2 * kSamples) * padded);
  curvature_.reserve(problem.experts * padded);
  loads_.reserve(problem.experts);
  best_.reserve(problem.experts);
}

void WholeShares::measure(const ActiveProblem& problem, const At& at, size_t threads) {
  const int64_t experts = problem.experts;
  padded_ = (experts + kLanes - 1) / kLanes * kLanes;
  const int64_t blocks = num_row_blocks(problem);
  price_.assign(padded_, 0.0F);
  for (int64_t e = 0; e < experts; ++e) {
    price_[e] = static_cast<float>(static_cast<double>((*at.prices)[e]) / at.units_per_score);
  }
  constexpr float kBitsPerNat = 1.44269504F;
  const auto per_score =
      static_cast<float>(kBitsPerNat * at.units_per_score / static_cast<double>(at.temperature));
  soft_.assign(blocks * padded_, 0.0F);
  counts_.assign(blocks * padded_, 0);
  const int64_t every = std::max<int64_t>(1, problem.tokens / kSamples) | 1;
  samples_ = (problem.tokens + every - 1) / every;
  sample_.resize(samples_ * padded_);
  for_row_blocks(problem, threads, [&](int64_t begin, int64_t end) {
    const int64_t block = begin / kRowsPerBlock;
    const int64_t before = (begin + every - 1) / every;  // samples in earlier blocks
    const RowRange rows{.scores = problem.row(begin),
                        .row_stride = problem.row_stride,
                        .experts = experts,
                        .padded = padded_,
                        .count = end - begin};
    share_rows(rows, price_.data(), per_score, before * every - begin, every,
               sample_.data() + before * padded_, &soft_[block * padded_],
               &counts_[block * padded_]);
  });
  loads_.assign(experts, 0.0);
  best_.assign(experts, 0);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t e = 0; e < experts; ++e) {
      loads_[e] += soft_[block * padded_ + e];
      best_[e] += counts_[block * padded_ + e];
    }
  }
  add_curvature(experts, static_cast<float>(problem.tokens) / static_cast<float>(samples_),
                threads);
}

void WholeShares::add_curvature(int64_t experts, float weight, size_t threads) {
  curvature_.assign(experts * padded_, 0.0F);
  const auto row = [&](size_t e) {
    curve_row(sample_.data(), samples_, padded_, static_cast<int64_t>(e), weight,
              &curvature_[static_cast<int64_t>(e) * padded_]);
  };
  if (threads == 1 || samples_ * experts * padded_ < 4 * kWorthAThread) {
    for (int64_t e = 0; e < experts; ++e) row(static_cast<size_t>(e));
  } else {
    parallel_for(static_cast<size_t>(experts), threads, row);
  }
}

}  // namespace ballast::assignment
