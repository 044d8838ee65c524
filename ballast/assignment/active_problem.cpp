// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/active_problem.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "ballast/assignment/half_float.h"
#include "ballast/assignment/row_blocks.h"
#include "ballast/system/error.h"
#include "ballast/system/vector_clones.h"

namespace ballast::assignment {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000;

struct Row {
  const void* data;
  int64_t begin;  // in elements
  int64_t stride;
  int64_t experts;
};

BALLAST_VECTOR_CLONES
void copy_float32(const Row& row, float* out) {
  const float* in = static_cast<const float*>(row.data) + row.begin;
  for (int64_t e = 0; e < row.experts; ++e) out[e] = in[e * row.stride];
}

BALLAST_VECTOR_CLONES
void copy_bfloat16(const Row& row, float* out) {
  const uint16_t* in = static_cast<const uint16_t*>(row.data) + row.begin;
  for (int64_t e = 0; e < row.experts; ++e) out[e] = from_bfloat16(in[e * row.stride]);
}

BALLAST_VECTOR_CLONES
void copy_float16(const Row& row, float* out) {
  const uint16_t* in = static_cast<const uint16_t*>(row.data) + row.begin;
  if (row.stride == 1) {
    for (int64_t e = 0; e < row.experts; ++e) out[e] = from_float16(in[e]);
  } else {
    for (int64_t e = 0; e < row.experts; ++e) out[e] = from_float16(in[e * row.stride]);
  }
}

void copy_row(const ScoreMatrix& scores, int64_t token, float* out) {
  const Row row{.data = scores.data,
                .begin = token * scores.token_stride,
                .stride = scores.expert_stride,
                .experts = scores.experts};
  switch (scores.type) {
    case ScoreType::kFloat32:
      return copy_float32(row, out);
    case ScoreType::kBFloat16:
      return copy_bfloat16(row, out);
    case ScoreType::kFloat16:
      return copy_float16(row, out);
  }
}

// The largest bit pattern without sign: at least kInfinityBits when a score is not finite.
BALLAST_VECTOR_CLONES
uint32_t largest_bits(const ActiveProblem& problem, int64_t begin, int64_t end) {
  // Rows without anything between them are one: its maxima come together once, not once a row.
  const bool dense = problem.row_stride == problem.experts;
  const int64_t rows = dense ? 1 : end - begin;
  const int64_t width = dense ? (end - begin) * problem.experts : problem.experts;
  int32_t largest = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = problem.row(begin + r);
    for (int64_t e = 0; e < width; ++e) {
      largest = std::max(largest, std::bit_cast<int32_t>(row[e]) & 0x7fffffff);
    }
  }
  return static_cast<uint32_t>(largest);
}

struct Finite {
  float lowest = std::numeric_limits<float>::infinity();
  float largest_magnitude = 0;
};

Finite finite_scores(const ActiveProblem& problem) {
  Finite found;
  for (int64_t token = 0; token < problem.tokens; ++token) {
    for (int64_t e = 0; e < problem.experts; ++e) {
      const float score = problem.row(token)[e];
      if (!std::isfinite(score)) continue;
      found.lowest = std::min(found.lowest, score);
      found.largest_magnitude = std::max(found.largest_magnitude, std::fabs(score));
    }
  }
  return found;
}

void refuse_non_finite(const ActiveProblem& problem, std::span<const int32_t> tokens,
                       NonFinite policy) {
  for (int64_t row = 0; row < problem.tokens; ++row) {
    for (int64_t e = 0; e < problem.experts; ++e) {
      const float score = problem.row(row)[e];
      const bool forbids = policy == NonFinite::kForbid && score < 0;
      if (std::isfinite(score) || forbids) continue;
      fail("the score of token {} for expert {} is {}", tokens.empty() ? row : tokens[row], e,
           std::isnan(score) ? "not a number"
           : score > 0       ? "infinite"
                             : "-infinite");
    }
  }
}

}  // namespace

ActiveProblem ActiveRows::read(const AssignmentProblem& problem, const LoadBounds& bounds,
                               size_t threads) {
  const ScoreMatrix& scores = problem.scores;
  ActiveProblem active{.scores = static_cast<const float*>(scores.data),
                       .tokens = scores.tokens,
                       .experts = scores.experts,
                       .row_stride = scores.token_stride,
                       .bounds = &bounds};
  tokens_.clear();
  replaced_ = 0;
  for (int64_t token = 0; token < static_cast<int64_t>(problem.counted.size()); ++token) {
    if (problem.counted[token] != 0) tokens_.push_back(static_cast<int32_t>(token));
  }
  if (!problem.counted.empty()) active.tokens = static_cast<int64_t>(tokens_.size());
  active.padding = scores.tokens - active.tokens;
  if (active.padding == 0) tokens_.clear();

  const bool in_place = scores.type == ScoreType::kFloat32 && scores.expert_stride == 1;
  const auto copy = [&] {
    copy_.resize(static_cast<size_t>(active.tokens * active.experts));
    for_row_blocks(active, threads, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        copy_row(scores, tokens_.empty() ? row : tokens_[row], &copy_[row * active.experts]);
      }
    });
    active.scores = copy_.data();
    active.row_stride = active.experts;
  };
  if (!in_place || active.padding > 0) copy();

  std::atomic<uint32_t> largest{0};
  for_row_blocks(active, threads, [&](int64_t begin, int64_t end) {
    const uint32_t bits = largest_bits(active, begin, end);
    uint32_t seen = largest.load();
    while (seen < bits && !largest.compare_exchange_weak(seen, bits)) {
    }
  });
  active.largest_magnitude = std::bit_cast<float>(largest.load());
  if (largest.load() < kInfinityBits) return active;

  if (problem.non_finite != NonFinite::kLowest) {
    refuse_non_finite(active, tokens_, problem.non_finite);
    active.has_forbidden = true;
    active.largest_magnitude = finite_scores(active).largest_magnitude;
    return active;
  }
  if (copy_.empty() || active.scores != copy_.data()) copy();
  const Finite finite = finite_scores(active);
  const float lowest = std::isinf(finite.lowest) ? 0 : finite.lowest;  // inf: none is finite
  for (float& score : copy_) {
    if (std::isfinite(score)) continue;
    score = lowest;
    ++replaced_;
  }
  active.largest_magnitude = finite.largest_magnitude;
  return active;
}

}  // namespace ballast::assignment
