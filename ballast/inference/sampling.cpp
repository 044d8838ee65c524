// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "ballast/kernels/vector_math.h"

namespace ballast::inference {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

float highest_finite(std::span<const float> logits) {
  const float highest = kernels::vector_maximum(logits.data(), static_cast<int64_t>(logits.size()));
  if (std::isfinite(highest)) return highest;
  float finite = kNever;
  for (const float logit : logits) finite = std::isfinite(logit) ? std::max(finite, logit) : finite;
  if (finite == kNever) throw std::invalid_argument("sample_token: no logit is finite");
  return finite;
}

// Ties are won by the lower id.
struct Worse {
  std::span<const float> weights;
  bool operator()(int64_t a, int64_t b) const {
    const float of_a = weights[static_cast<size_t>(a)], of_b = weights[static_cast<size_t>(b)];
    return of_a != of_b ? of_a < of_b : a > b;
  }
};

// Tokens, likeliest first, taken one by one: most draws end among the first few of many.
class FallingOrder {
 public:
  explicit FallingOrder(std::span<const float> weights) : weights_(weights) {
    // Nearly all of the weight is here; the rest is sorted only where it is asked for.
    constexpr float kMuch = 1e-3F;
    gather(kMuch, std::numeric_limits<float>::infinity());
    rest_below_ = kMuch;
  }

  // The next token, or -1 after the last of positive weight.
  int64_t next() {
    if (end_ == heap_.begin() && rest_below_ > 0) {
      gather(std::numeric_limits<float>::denorm_min(), rest_below_);
      rest_below_ = 0;
    }
    if (end_ == heap_.begin()) return -1;
    std::pop_heap(heap_.begin(), end_, Worse{weights_});
    return *--end_;
  }

 private:
  void gather(float least, float below) {
    heap_.clear();
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] >= least && weights_[i] < below) heap_.push_back(static_cast<int64_t>(i));
    }
    std::make_heap(heap_.begin(), heap_.end(), Worse{weights_});
    end_ = heap_.end();
  }

  std::span<const float> weights_;
  std::vector<int64_t> heap_;
  std::vector<int64_t>::iterator end_;
  float rest_below_ = 0;
};

}  // namespace

int64_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     double uniform) {
  const float highest = highest_finite(logits);
  const auto heat = static_cast<float>(options.temperature);
  if (heat <= 0) return std::ranges::find(logits, highest) - logits.begin();  // the lowest id
  std::vector<float> weights(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    weights[i] = std::isfinite(logits[i]) ? (logits[i] - highest) / heat : kNever;
  const double total =
      kernels::vector_exponentiate(weights.data(), static_cast<int64_t>(weights.size()), 0);

  FallingOrder order(weights);
  const auto weight_of = [&](int64_t token) {
    return static_cast<double>(weights[static_cast<size_t>(token)]);
  };
  std::vector<int64_t> kept;
  double sum = 0;
  const auto keep_while = [&](const auto& wants_more) {
    for (int64_t token = 0; wants_more() && (token = order.next()) >= 0;) {
      kept.push_back(token);
      sum += weight_of(token);
    }
  };
  if (options.top_k > 0) keep_while([&] { return std::ssize(kept) < options.top_k; });
  if (options.top_p < 1) {
    const double enough = options.top_p * (kept.empty() ? total : sum);
    if (kept.empty()) keep_while([&] { return kept.empty() || sum < enough; });
    for (; kept.size() > 1 && sum - weight_of(kept.back()) >= enough; kept.pop_back())
      sum -= weight_of(kept.back());
  }
  double rest = uniform * (kept.empty() ? total : sum);
  int64_t last = 0;
  for (size_t i = 0; kept.empty() || i < kept.size(); ++i) {
    const int64_t token = kept.empty() ? order.next() : kept[i];
    if (token < 0) break;
    last = token;
    rest -= weight_of(token);
    if (rest < 0) break;
  }
  return last;
}

}  // namespace ballast::inference
