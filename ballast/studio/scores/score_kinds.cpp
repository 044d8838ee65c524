// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/scores/score_kinds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "ballast/studio/scores/normal_numbers.h"
#include "ballast/system/error.h"
#include "ballast/system/parallel.h"
#include "ballast/system/random.h"

namespace ballast::scores {
namespace {

struct KindText {
  ScoreKind kind;
  std::string_view name, about;
};

constexpr std::array kKinds = {
    KindText{ScoreKind::kGauss, "gauss", "independent standard normal numbers"},
    KindText{ScoreKind::kCluster, "cluster", "clusters of tokens, uneven experts: heavy skew"},
    KindText{ScoreKind::kCommon, "common",
             "as early in training: nearly all want the same experts"},
    KindText{ScoreKind::kNearDuplicates, "near-duplicates", "clusters of nearly equal tokens"},
    KindText{ScoreKind::kPadded, "padded", "clusters, 30 % of the rows identical"},
    KindText{ScoreKind::kQuantised, "quantised", "clusters, rounded to multiples of 1/4"},
    KindText{ScoreKind::kThreeValues, "three-values", "0, 1 or 2"},
    KindText{ScoreKind::kAllEqual, "all-equal", "one score for all"},
    KindText{ScoreKind::kEqualRows, "equal-rows", "one row for all tokens"},
    KindText{ScoreKind::kOnePreferred, "one-preferred", "gauss, and 100 more for expert 0"},
    KindText{ScoreKind::kLowRank, "low-rank", "a number of the token times one of the expert"},
    KindText{ScoreKind::kCollapsed, "collapsed",
             "nearly two sorts of tokens, the rest ever smaller"},
    KindText{ScoreKind::kOutliers, "outliers",
             "gauss, in one token of 512 a score 1e10 times as large"},
};

const KindText& text_of(ScoreKind kind) {
  return *std::ranges::find(kKinds, kind, &KindText::kind);
}

constexpr int64_t kMostScores = int64_t{1} << 40;
constexpr size_t kBlock = 64;  // tokens made at a time; never a function of the threads

// Where the numbers of a kind come from: `what` and its index name them.
uint64_t key_of(const ScoreRequest& request, std::string_view what, uint64_t index) {
  return random_bits(request.seed, what, static_cast<uint64_t>(request.experts), index);
}

// The same, of one block of tokens of the batch.
uint64_t token_key(const ScoreRequest& request, std::string_view what, uint64_t block) {
  return random_bits(key_of(request, what, request.batch), "tokens", block);
}

std::vector<float> normal_numbers(uint64_t key, size_t count) {
  std::vector<float> numbers(count);
  fill_normal(key, numbers);
  return numbers;
}

// A block of rows: `first` is its first token.
struct Rows {
  uint64_t block;
  size_t first, count;
  std::span<float> scores;  // [count, experts]
};

// Tokens h = cluster mean + noise and experts w of uneven norm with a part along what all clusters
// share; the score is their product.
class Clusters {
 public:
  Clusters(const ScoreRequest& request, float noise)
      : request_(request),
        noise_(noise),
        experts_(static_cast<size_t>(request.experts)),
        means_(normal_numbers(key_of(request, "cluster means", 0), kClusters * kWidth)),
        columns_(kWidth * experts_) {
    std::vector<float> shared = normal_numbers(key_of(request, "cluster shared", 0), kWidth);
    for (float& x : shared) x *= 0.5F;
    for (size_t i = 0; i < means_.size(); ++i) means_[i] += shared[i % kWidth];
    const auto norms = normal_numbers(key_of(request, "cluster norms", 0), experts_);
    const auto along = normal_numbers(key_of(request, "cluster along", 0), experts_);
    for (size_t e = 0; e < experts_; ++e) {
      const auto w = normal_numbers(key_of(request, "cluster experts", e), kWidth);
      const float scale = 0.3F * std::exp(0.4F * norms[e]);
      for (size_t d = 0; d < kWidth; ++d)
        columns_[d * experts_ + e] = scale * w[d] + 0.3F * along[e] * shared[d];
    }
    double sum = 0;
    for (size_t c = 0; c < kClusters; ++c) shares_[c] = sum += 1.0 / static_cast<double>(1 + c);
    for (double& share : shares_) share /= sum;
  }

  void fill(const Rows& rows) const {
    std::array<float, kBlock * kWidth> tokens;
    const std::span used(tokens.data(), rows.count * kWidth);
    fill_normal(token_key(request_, "cluster noise", rows.block), used);
    RandomStream random(token_key(request_, "cluster choice", rows.block), "choice");
    for (size_t t = 0; t < rows.count; ++t) {
      const auto chosen = std::ranges::upper_bound(shares_, random.uniform()) - shares_.begin();
      const size_t c = std::min(static_cast<size_t>(chosen), kClusters - 1);
      for (size_t d = 0; d < kWidth; ++d)
        tokens[t * kWidth + d] = means_[c * kWidth + d] + noise_ * tokens[t * kWidth + d];
    }
    std::ranges::fill(rows.scores, 0.0F);
    size_t t = 0;
    for (; t + 4 <= rows.count; t += 4) multiply<4>(tokens.data(), t, rows.scores.data());
    for (; t < rows.count; ++t) multiply<1>(tokens.data(), t, rows.scores.data());
  }

 private:
  static constexpr size_t kWidth = 256, kClusters = 20;

  // Scores of `kRows` tokens from t on. Each is summed over d in order, so any kRows gives the
  // same.
  template <size_t kRows>
  void multiply(const float* tokens, size_t t, float* scores) const {
    constexpr size_t kColumns = 16;  // their sums stay in registers
    size_t e = 0;
    for (; e + kColumns <= experts_; e += kColumns) {
      float sums[kRows][kColumns] = {};
      for (size_t d = 0; d < kWidth; ++d) {
        const float* const column = &columns_[d * experts_ + e];
        for (size_t r = 0; r < kRows; ++r) {
          const float x = tokens[(t + r) * kWidth + d];
          for (size_t i = 0; i < kColumns; ++i) sums[r][i] += x * column[i];
        }
      }
      for (size_t r = 0; r < kRows; ++r)
        std::copy_n(sums[r], kColumns, scores + (t + r) * experts_ + e);
    }
    for (; e < experts_; ++e) {
      for (size_t r = 0; r < kRows; ++r) {
        float sum = 0;
        for (size_t d = 0; d < kWidth; ++d)
          sum += tokens[(t + r) * kWidth + d] * columns_[d * experts_ + e];
        scores[(t + r) * experts_ + e] = sum;
      }
    }
  }

  ScoreRequest request_;
  float noise_;
  size_t experts_;
  std::vector<float> means_;    // [kClusters, kWidth]
  std::vector<float> columns_;  // [kWidth, experts]
  std::array<double, kClusters> shares_{};
};

// A preference all tokens share, and a seventh as much of their own, nearly all in a few
// directions: what real scores look like after some thirty steps.
class CommonPreference {
 public:
  explicit CommonPreference(const ScoreRequest& request)
      : request_(request),
        experts_(static_cast<size_t>(request.experts)),
        shared_(normal_numbers(key_of(request, "common shared", 0), experts_)) {
    for (size_t k = 0; k < kStrengths.size(); ++k)
      directions_[k] = normal_numbers(key_of(request, "common directions", k), experts_);
  }

  void fill(const Rows& rows) const {
    fill_normal(token_key(request_, "common noise", rows.block), rows.scores);
    const auto own =
        normal_numbers(token_key(request_, "common own", rows.block), kBlock * kStrengths.size());
    for (size_t t = 0; t < rows.count; ++t) {
      float* const row = rows.scores.data() + t * experts_;
      for (size_t e = 0; e < experts_; ++e) row[e] = 0.16F * shared_[e] + 0.003F * row[e];
      for (size_t k = 0; k < kStrengths.size(); ++k) {
        const float x = kStrengths[k] * own[t * kStrengths.size() + k];
        for (size_t e = 0; e < experts_; ++e) row[e] += x * directions_[k][e];
      }
    }
  }

 private:
  static constexpr std::array kStrengths = {0.02F, 0.01F, 0.006F, 0.004F};

  ScoreRequest request_;
  size_t experts_;
  std::vector<float> shared_;  // [experts]
  std::array<std::vector<float>, kStrengths.size()> directions_;
};

// What real scores look like where features collapse: a preference all tokens share, two sorts of
// tokens along one direction, and further directions each a fraction of the one before.
class Collapsed {
 public:
  explicit Collapsed(const ScoreRequest& request)
      : request_(request),
        experts_(static_cast<size_t>(request.experts)),
        shared_(normal_numbers(key_of(request, "collapsed shared", 0), experts_)) {
    for (size_t k = 0; k < kStrengths.size(); ++k)
      directions_[k] = normal_numbers(key_of(request, "collapsed directions", k), experts_);
  }

  void fill(const Rows& rows) const {
    const auto own = normal_numbers(token_key(request_, "collapsed own", rows.block),
                                    kBlock * kStrengths.size());
    RandomStream random(token_key(request_, "collapsed sort", rows.block), "sort");
    for (size_t t = 0; t < rows.count; ++t) {
      float* const row = rows.scores.data() + t * experts_;
      const float* const x = &own[t * kStrengths.size()];
      const float sort = random.uniform() < 0.7 ? -0.65F + 0.01F * x[0] : 1.5F + 0.03F * x[0];
      for (size_t e = 0; e < experts_; ++e)
        row[e] = 2 * shared_[e] + kStrengths[0] * sort * directions_[0][e];
      for (size_t k = 1; k < kStrengths.size(); ++k)
        for (size_t e = 0; e < experts_; ++e) row[e] += kStrengths[k] * x[k] * directions_[k][e];
    }
  }

 private:
  static constexpr std::array kStrengths = {1.0F, 2e-2F, 3e-3F, 1e-3F, 5e-4F, 3e-4F, 2e-4F, 1e-4F};

  ScoreRequest request_;
  size_t experts_;
  std::vector<float> shared_;  // [experts]
  std::array<std::vector<float>, kStrengths.size()> directions_;
};

// Row 0 of the batch stands in for about 30 % of the rows.
void copy_padding(const ScoreRequest& request, std::vector<float>& scores) {
  const auto experts = request.experts;
  RandomStream random(token_key(request, "padding", 0), "padding");
  for (int64_t t = 1; t < request.tokens; ++t) {
    if (random.uniform() < 0.3) std::copy_n(scores.begin(), experts, scores.begin() + t * experts);
  }
}

template <typename Fill>
void fill_blocks(const ScoreRequest& request, size_t threads, std::vector<float>& scores,
                 const Fill& fill) {
  const auto tokens = static_cast<size_t>(request.tokens);
  const auto experts = static_cast<size_t>(request.experts);
  parallel_for((tokens + kBlock - 1) / kBlock, threads, [&](size_t block) {
    const size_t first = block * kBlock, count = std::min(kBlock, tokens - first);
    fill(Rows{block, first, count, std::span(scores).subspan(first * experts, count * experts)});
  });
}

void fill_gauss(const ScoreRequest& request, size_t threads, std::vector<float>& scores) {
  fill_blocks(request, threads, scores, [&](const Rows& rows) {
    fill_normal(token_key(request, "gauss", rows.block), rows.scores);
  });
}

void fill_clusters(const ScoreRequest& request, float noise, size_t threads,
                   std::vector<float>& scores) {
  const Clusters clusters(request, noise);
  fill_blocks(request, threads, scores, [&](const Rows& rows) { clusters.fill(rows); });
}

void fill_low_rank(const ScoreRequest& request, size_t threads, std::vector<float>& scores) {
  const auto of_expert =
      normal_numbers(key_of(request, "low rank", 0), static_cast<size_t>(request.experts));
  fill_blocks(request, threads, scores, [&](const Rows& rows) {
    const auto of_token = normal_numbers(token_key(request, "low rank", rows.block), rows.count);
    for (size_t i = 0; i < rows.scores.size(); ++i)
      rows.scores[i] = of_token[i / of_expert.size()] * of_expert[i % of_expert.size()];
  });
}

void raise_outliers(const ScoreRequest& request, std::vector<float>& scores) {
  const auto experts = static_cast<uint64_t>(request.experts);
  RandomStream random(token_key(request, "outliers", 0), "outliers");
  for (int64_t t = 0; t < request.tokens; ++t) {
    const uint64_t expert = random.below(experts);
    if (random.below(512) == 0) scores[static_cast<uint64_t>(t) * experts + expert] *= 1e10F;
  }
}

}  // namespace

std::span<const ScoreKind> all_score_kinds() {
  static constexpr auto kAll = [] {
    std::array<ScoreKind, kKinds.size()> kinds{};
    std::ranges::transform(kKinds, kinds.begin(), &KindText::kind);
    return kinds;
  }();
  return kAll;
}

std::string_view score_kind_name(ScoreKind kind) { return text_of(kind).name; }
std::string_view describe(ScoreKind kind) { return text_of(kind).about; }

ScoreKind parse_score_kind(std::string_view name) {
  const auto found = std::ranges::find(kKinds, name, &KindText::name);
  if (found != kKinds.end()) return found->kind;
  std::string names;
  for (const KindText& text : kKinds)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", text.name);
  fail("there is no kind of scores \"{}\": choose one of {}", name, names);
}

namespace {

void check_request(const ScoreRequest& request) {
  if (request.tokens < 0) fail("cannot make scores for {} tokens", request.tokens);
  if (request.experts < 1)
    fail("cannot make scores for {} experts: want one or more", request.experts);
  if (request.tokens > kMostScores / request.experts)
    fail("{} tokens x {} experts is more than this machine can hold", request.tokens,
         request.experts);
}

}  // namespace

std::vector<float> generate_scores(const ScoreRequest& request, size_t threads) {
  check_request(request);
  const auto experts = static_cast<size_t>(request.experts);
  std::vector<float> scores(static_cast<size_t>(request.tokens) * experts);
  switch (request.kind) {
    case ScoreKind::kGauss:
      fill_gauss(request, threads, scores);
      break;
    case ScoreKind::kCluster:
      fill_clusters(request, 0.5F, threads, scores);
      break;
    case ScoreKind::kCommon: {
      const CommonPreference common(request);
      fill_blocks(request, threads, scores, [&](const Rows& rows) { common.fill(rows); });
      break;
    }
    case ScoreKind::kNearDuplicates:
      fill_clusters(request, 0.02F, threads, scores);
      break;
    case ScoreKind::kPadded:
      fill_clusters(request, 0.5F, threads, scores);
      copy_padding(request, scores);
      break;
    case ScoreKind::kQuantised:
      fill_clusters(request, 0.5F, threads, scores);
      for (float& x : scores) x = std::nearbyint(x * 4) / 4;
      break;
    case ScoreKind::kThreeValues:
      fill_blocks(request, threads, scores, [&](const Rows& rows) {
        RandomStream random(token_key(request, "three values", rows.block), "values");
        for (float& x : rows.scores) x = static_cast<float>(random.below(3));
      });
      break;
    case ScoreKind::kAllEqual:
      std::ranges::fill(scores, 1.5F);
      break;
    case ScoreKind::kEqualRows: {
      const auto row = normal_numbers(key_of(request, "equal rows", 0), experts);
      for (size_t i = 0; i < scores.size(); ++i) scores[i] = row[i % experts];
      break;
    }
    case ScoreKind::kOnePreferred:
      fill_gauss(request, threads, scores);
      for (size_t i = 0; i < scores.size(); i += experts) scores[i] += 100;
      break;
    case ScoreKind::kLowRank:
      fill_low_rank(request, threads, scores);
      break;
    case ScoreKind::kCollapsed: {
      const Collapsed collapsed(request);
      fill_blocks(request, threads, scores, [&](const Rows& rows) { collapsed.fill(rows); });
      break;
    }
    case ScoreKind::kOutliers:
      fill_gauss(request, threads, scores);
      raise_outliers(request, scores);
      break;
  }
  return scores;
}

}  // namespace ballast::scores
