// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/auction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ballast/assignment/lanes.h"
#include "ballast/system/parallel.h"
#include "ballast/system/vector_clones.h"

namespace ballast::assignment {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr int64_t kTile = 16;

// Scores for experts [first, first + kTile) and tokens [begin, end), times `scale`, to [E, T].
BALLAST_VECTOR_CLONES
void transpose(const ActiveProblem& problem, int64_t first, float scale, float* out) {
  const int64_t width = std::min(kTile, problem.experts - first);
  for (int64_t begin = 0; begin < problem.tokens; begin += kTile) {
    const int64_t end = std::min(begin + kTile, problem.tokens);
    for (int64_t e = 0; e < width; ++e) {
      for (int64_t t = begin; t < end; ++t) {
        out[(first + e) * problem.tokens + t] = problem.row(t)[first + e] * scale;
      }
    }
  }
}

// Lowest and largest finite score, by vector lane.
BALLAST_VECTOR_CLONES
void find_range(const float* scores, int64_t size, float* lowest, float* largest) {
  for (int64_t i = 0; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float score = scores[i + lane];
      const float finite = score == kForbidden ? lowest[lane] : score;
      lowest[lane] = finite < lowest[lane] ? finite : lowest[lane];
      largest[lane] = score > largest[lane] ? score : largest[lane];
    }
  }
}

}  // namespace

AuctionSolver::Range AuctionSolver::finite_range(std::span<const float> scores) {
  std::array<float, kLanes> lowest, largest;
  lowest.fill(-kForbidden);
  largest.fill(kForbidden);
  find_range(scores.data(), std::ssize(scores), lowest.data(), largest.data());
  Range range{.lowest = *std::min_element(lowest.begin(), lowest.end()),
              .largest = *std::max_element(largest.begin(), largest.end())};
  for (const float score : scores.last(scores.size() % kLanes)) {
    if (score == kForbidden) continue;
    range.lowest = std::min(range.lowest, score);
    range.largest = std::max(range.largest, score);
  }
  return range;
}

// Calls body(part) for each part, on threads where there are several.
void AuctionSolver::in_parts(size_t parts, const auto& body) const {
  if (threads() == 1) {
    for (size_t part = 0; part < parts; ++part) body(part);
  } else {
    parallel_for(parts, threads(), body);
  }
}

void AuctionSolver::copy_scores(const ActiveProblem& problem) {
  scores_.resize(static_cast<size_t>(tokens_ * experts_));
  int exponent = 0;
  std::frexp(problem.largest_magnitude, &exponent);
  scale_ = std::ldexp(1.0F, std::clamp(-exponent, -126, 126));
  const auto tiles = static_cast<size_t>((experts_ + kTile - 1) / kTile);
  ranges_.resize(tiles);
  in_parts(tiles, [&](size_t tile) {
    const int64_t first = static_cast<int64_t>(tile) * kTile;
    const int64_t last = std::min(first + kTile, experts_);
    transpose(problem, first, scale_, scores_.data());
    ranges_[tile] =
        finite_range(std::span(scores_).subspan(first * tokens_, (last - first) * tokens_));
  });
  Range range = ranges_.front();
  for (const Range& other : ranges_) {
    range.lowest = std::min(range.lowest, other.lowest);
    range.largest = std::max(range.largest, other.largest);
  }
  range_ = std::max(0.0F, range.largest - range.lowest);  // without finite scores -inf
  increment_ = range_ > 0 ? range_ / 50 : 1;              // all are equal: any will do
}

void AuctionSolver::open(const ActiveProblem& problem) {
  tokens_ = problem.tokens;
  experts_ = problem.experts;
  copy_scores(problem);
  price_.assign(static_cast<size_t>(tokens_), 0.0F);
  holder_.assign(static_cast<size_t>(tokens_), -1);
  high_bid_.resize(static_cast<size_t>(tokens_));
  held_.resize(static_cast<size_t>(tokens_));
  expert_.assign(static_cast<size_t>(experts_), {});
  int64_t begin = 0;
  for (int64_t e = 0; e < experts_; ++e) {
    expert_[e].wants = static_cast<int32_t>(std::min<int64_t>(problem.bounds->upper[e], tokens_));
    expert_[e].begin = begin;
    begin += expert_[e].wants;
  }
  bids_.resize(static_cast<size_t>(begin));
  rounds_ = 0;
}

void AuctionSolver::bid(size_t index, TopTokens& top) {
  Expert& expert = expert_[index];
  expert.num_bids = 0;
  if (expert.holds > 0 && expert.holds == expert.wants) return;  // it only keeps what it holds
  const std::span scores = std::span(scores_).subspan(index * tokens_, tokens_);
  top.value(scores, price_);
  for (int32_t i = 0; i < expert.holds; ++i) top.leave_out(held_[expert.first_held + i]);
  const auto best = top.best(expert.wants - expert.holds);
  if (top.worth_of_next() > kForbidden) expert.worth_of_next = top.worth_of_next();
  expert.num_bids = static_cast<int32_t>(best.size());
  Bid* bids = bids_.data() + expert.begin;
  for (const TopTokens::Candidate& token : best) {
    *bids++ = {.token = token.token, .amount = token.worth - expert.worth_of_next + increment_};
  }
}

// A holder bids the least amount to keep its token, and loses it only to a larger bid.
void AuctionSolver::award() {
  for (int64_t t = 0; t < tokens_; ++t) high_bid_[t] = holder_[t] >= 0 ? increment_ : 0;
  for (size_t e = 0; e < expert_.size(); ++e) {
    for (const Bid& bid : std::span(bids_).subspan(expert_[e].begin, expert_[e].num_bids)) {
      if (bid.amount <= high_bid_[bid.token]) continue;
      high_bid_[bid.token] = bid.amount;
      holder_[bid.token] = static_cast<int32_t>(e);
    }
  }
  for (int64_t t = 0; t < tokens_; ++t) price_[t] += high_bid_[t];
}

bool AuctionSolver::list_held() {
  for (Expert& expert : expert_) expert.holds = 0;
  for (const int32_t holder : holder_) {
    if (holder >= 0) ++expert_[holder].holds;
  }
  int32_t begin = 0;
  for (Expert& expert : expert_) {
    expert.first_held = begin;
    begin += expert.holds;
    expert.holds = 0;
  }
  for (int32_t t = 0; t < static_cast<int32_t>(tokens_); ++t) {
    if (holder_[t] < 0) continue;
    Expert& expert = expert_[holder_[t]];
    held_[expert.first_held + expert.holds++] = t;
  }
  return begin == tokens_;
}

bool AuctionSolver::run_round() {
  // Each part takes a run of experts, with memory of its own.
  const size_t parts = top_.size();
  in_parts(parts, [&](size_t part) {
    const size_t end = expert_.size() * (part + 1) / parts;
    for (size_t e = expert_.size() * part / parts; e < end; ++e) bid(e, top_[part]);
  });
  award();
  return list_held();
}

void AuctionSolver::choose(const ActiveProblem& problem, std::span<const double>, Choice& choice) {
  // Each has memory of its own, so no more than can be at work.
  const size_t parts = std::min(threads() == 0 ? num_cores() : threads(), num_cores());
  top_.resize(std::clamp<size_t>(problem.experts, 1, parts));
  open(problem);
  for (bool done = tokens_ == 0; !done && rounds_ < kMostRounds; ++rounds_) done = run_round();
  set_prices(choice);
  std::copy(holder_.begin(), holder_.end(), choice.expert_of_row.begin());
  completion_.complete(problem, choice.prices, choice.expert_of_row);
}

// An expert's price is what the least of its tokens is worth to it: that was measured to give a
// tenth of the gap that its best token outside the list gives. More than the range tells nothing.
void AuctionSolver::set_prices(Choice& choice) const {
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t e = 0; e < expert_.size(); ++e) {
    const Expert& expert = expert_[e];
    float least = expert.holds > 0 ? -kForbidden : expert.worth_of_next;
    for (const int32_t token : std::span(held_).subspan(expert.first_held, expert.holds)) {
      least = std::min(least, scores_[e * tokens_ + token] - price_[token]);
    }
    choice.prices[e] = static_cast<double>(least);
    lowest = std::min(lowest, choice.prices[e]);
  }
  for (double& price : choice.prices) price = std::min<double>(price - lowest, range_) / scale_;
}

}  // namespace ballast::assignment
