// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace ballast::inference {

int64_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     double uniform) {
  const auto better = [&](int64_t a, int64_t b) {
    return logits[static_cast<size_t>(a)] != logits[static_cast<size_t>(b)]
               ? logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]
               : a < b;
  };
  std::vector<int64_t> order;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) order.push_back(static_cast<int64_t>(i));
  }
  if (order.empty()) throw std::invalid_argument("sample_token: no logit is finite");
  if (options.temperature <= 0) return *std::ranges::min_element(order, better);
  std::ranges::sort(order, better);
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));

  std::vector<double> weights;
  const double highest = logits[static_cast<size_t>(order.front())];
  for (int64_t id : order)
    weights.push_back(std::exp((logits[static_cast<size_t>(id)] - highest) / options.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options.top_p * total))
    kept += weights[count++];

  double rest = uniform * kept;
  for (size_t i = 0; i < count; ++i) {
    rest -= weights[i];
    if (rest < 0) return order[i];
  }
  return order[count - 1];
}

}  // namespace ballast::inference
