// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/learning_rates.h"

#include <algorithm>
#include <cmath>

namespace ballast::experiments {
namespace {

constexpr size_t kMostBeyond = 2;

bool is_same(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(a, b); }

}  // namespace

std::vector<double> learning_rates_around(double middle, size_t count) {
  std::vector<double> rates;
  const double half = static_cast<double>(count / 2);
  for (size_t i = 0; i < count; ++i)
    rates.push_back(middle * std::exp2((static_cast<double>(i) - half) / 2));
  return rates;
}

std::optional<double> best_rate(const std::vector<record::SweptRate>& swept) {
  const record::SweptRate* best = nullptr;
  for (const record::SweptRate& rate : swept) {
    if (rate.loss && (best == nullptr || *rate.loss < *best->loss)) best = &rate;
  }
  return best == nullptr ? std::nullopt : std::optional(best->learning_rate);
}

std::vector<double> rates_to_try(const std::vector<record::SweptRate>& swept, double middle,
                                 size_t count) {
  std::vector<double> left = learning_rates_around(middle, count);
  std::erase_if(left, [&](double rate) {
    return std::ranges::any_of(
        swept, [&](const record::SweptRate& done) { return is_same(done.learning_rate, rate); });
  });
  if (!left.empty() || count == 1 || swept.size() >= count + kMostBeyond) return left;
  const auto [lowest, highest] = std::ranges::minmax(swept, {}, &record::SweptRate::learning_rate);
  const std::optional<double> best = best_rate(swept);
  if (!best) return {lowest.learning_rate / 2};
  if (*best == lowest.learning_rate) return {*best / std::sqrt(2.0)};
  if (*best == highest.learning_rate) return {*best * std::sqrt(2.0)};
  return {};
}

}  // namespace ballast::experiments
