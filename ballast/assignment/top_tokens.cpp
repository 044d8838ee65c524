// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/top_tokens.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "ballast/assignment/lanes.h"
#include "ballast/system/vector_clones.h"

namespace ballast::assignment {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// A block is one vector lane of kDepth vectors in a row, so that maxima need no shuffling.
constexpr int64_t kDepth = 16;
constexpr int64_t kGroup = kLanes * kDepth;

BALLAST_VECTOR_CLONES
void subtract(const float* scores, const float* price, int64_t size, float* worth) {
  for (int64_t t = 0; t < size; ++t) worth[t] = scores[t] - price[t];
}

BALLAST_VECTOR_CLONES
void take_block_maxima(const float* worth, int64_t groups, float* block_max) {
  for (int64_t group = 0; group < groups; ++group) {
    float largest[kLanes];
    for (int64_t lane = 0; lane < kLanes; ++lane) largest[lane] = worth[group * kGroup + lane];
    for (int64_t i = 1; i < kDepth; ++i) {
      const float* next = worth + group * kGroup + i * kLanes;
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        largest[lane] = next[lane] > largest[lane] ? next[lane] : largest[lane];
      }
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) block_max[group * kLanes + lane] = largest[lane];
  }
}

}  // namespace

void TopTokens::value(std::span<const float> scores, std::span<const float> price) {
  tokens_ = std::ssize(scores);
  worth_.resize(static_cast<size_t>((tokens_ + kGroup - 1) / kGroup * kGroup));
  candidates_.reserve(worth_.size());
  subtract(scores.data(), price.data(), tokens_, worth_.data());
  std::fill(worth_.begin() + tokens_, worth_.end(), kForbidden);
}

void TopTokens::leave_out(int32_t token) { worth_[token] = kForbidden; }

void TopTokens::find_block_maxima() {
  const int64_t groups = std::ssize(worth_) / kGroup;
  block_max_.resize(static_cast<size_t>(groups * kLanes));
  take_block_maxima(worth_.data(), groups, block_max_.data());
}

// At least `count` tokens are worth this much: as many blocks have one.
float TopTokens::bound(int64_t count) {
  if (count > std::ssize(block_max_)) return kForbidden;
  sorted_.assign(block_max_.begin(), block_max_.end());
  std::nth_element(sorted_.begin(), sorted_.begin() + (count - 1), sorted_.end(), std::greater<>());
  return sorted_[count - 1];
}

std::span<const TopTokens::Candidate> TopTokens::best(int64_t count) {
  find_block_maxima();
  const float least = bound(count + 1);
  candidates_.clear();
  for (int64_t block = 0; block < std::ssize(block_max_); ++block) {
    if (block_max_[block] < least) continue;
    const int64_t first = block / kLanes * kGroup + block % kLanes;
    for (int64_t t = first; t < first + kGroup; t += kLanes) {
      if (worth_[t] >= least && worth_[t] > kForbidden) {
        candidates_.push_back({.worth = worth_[t], .token = static_cast<int32_t>(t)});
      }
    }
  }
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.worth > b.worth || (a.worth == b.worth && a.token < b.token);
  };
  if (std::ssize(candidates_) > count) {
    std::nth_element(candidates_.begin(), candidates_.begin() + count, candidates_.end(), better);
    worth_of_next_ = candidates_[count].worth;
    return {candidates_.data(), static_cast<size_t>(count)};
  }
  const auto last = std::max_element(candidates_.begin(), candidates_.end(), better);
  worth_of_next_ = last == candidates_.end() ? kForbidden : last->worth;
  return candidates_;
}

}  // namespace ballast::assignment
