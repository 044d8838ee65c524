// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/expert_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "ballast/record/validation_file.h"

namespace ballast::inference {
namespace {

int64_t whole(double count) { return std::llround(count); }

std::vector<int64_t> whole(std::span<const double> counts) {
  std::vector<int64_t> numbers(counts.size());
  std::ranges::transform(counts, numbers.begin(), [](double count) { return whole(count); });
  return numbers;
}

// Positive sums of a table's rows or columns, and how many there are of each.
struct Sum {
  double value;
  double times;
};
std::vector<Sum> distinct_sums(std::vector<double> sums) {
  std::ranges::sort(sums);
  std::vector<Sum> distinct;
  for (const double sum : sums) {
    if (sum == 0) continue;
    if (distinct.empty() || distinct.back().value != sum) distinct.push_back({sum, 0});
    distinct.back().times += 1;
  }
  return distinct;
}

// Mean of k log2(k total / (a b)), where k of `a` things are among `b` drawn out of `total`.
double mean_by_chance(double a, double b, double total) {
  constexpr double kNegligible = 1e-18;  // beside the likeliest k
  const auto term = [&](double k) { return k > 0 ? k * std::log2(k / a * (total / b)) : 0.0; };
  // Hypergeometric probabilities by the ratios of neighbours: no difference of large logarithms.
  const double mode = std::min({std::floor((a + 1) / (total + 2) * (b + 1)), a, b});
  double weights = 1, sum = term(mode);
  const auto take = [&](double weight, double k) {
    weights += weight;
    sum += weight * term(k);
  };
  double weight = 1;
  for (double k = mode; k < std::min(a, b) && weight > kNegligible; ++k) {
    weight *= (a - k) / (k + 1) * ((b - k) / (total - a - b + k + 1));
    take(weight, k + 1);
  }
  weight = 1;
  for (double k = mode; k > std::max(0.0, a + b - total) && weight > kNegligible; --k) {
    weight *= k / (a - k + 1) * ((total - a - b + k) / (b - k + 1));
    take(weight, k - 1);
  }
  return sum / weights;
}

// Mutual information beyond chance, in bits, of the rows and columns of `cells`, [rows, columns].
double information(std::span<const double> cells, size_t rows) {
  const size_t columns = cells.size() / rows;
  std::vector<double> row_sums(rows), column_sums(columns);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      row_sums[row] += cells[row * columns + column];
      column_sums[column] += cells[row * columns + column];
    }
  }
  const double total = std::reduce(row_sums.begin(), row_sums.end());
  if (total == 0) return 0;
  double bits = 0;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      const double k = cells[row * columns + column];
      if (k > 0) bits += k * std::log2(k / row_sums[row] * (total / column_sums[column]));
    }
  }
  const std::vector<Sum> distinct_rows = distinct_sums(std::move(row_sums));
  for (const Sum& column : distinct_sums(std::move(column_sums))) {
    for (const Sum& row : distinct_rows) {
      bits -= row.times * column.times * mean_by_chance(column.value, row.value, total);
    }
  }
  return std::max(0.0, bits / total);
}

}  // namespace

ExpertUse::ExpertUse(int64_t experts, int64_t vocabulary, std::vector<std::string> domains)
    : experts_(experts), vocabulary_(vocabulary), domains_(std::move(domains)) {
  if (experts < 1 || vocabulary < 1) {
    throw std::invalid_argument(
        fmt::format("ExpertUse: {} experts, a vocabulary of {}", experts, vocabulary));
  }
  counts_.resize(static_cast<size_t>(experts) *
                 (1 + static_cast<size_t>(vocabulary) + domains_.size()));
}

std::span<const double> ExpertUse::expert_loads() const {
  return std::span(counts_).first(static_cast<size_t>(experts_));
}

std::span<const double> ExpertUse::by_token() const {
  return std::span(counts_).subspan(static_cast<size_t>(experts_),
                                    static_cast<size_t>(experts_ * vocabulary_));
}

std::span<const double> ExpertUse::by_domain() const {
  return std::span(counts_).last(static_cast<size_t>(experts_) * domains_.size());
}

void ExpertUse::check(std::span<const int64_t> tokens, std::span<const int32_t> domains,
                      std::span<const int32_t> expert_of_token,
                      std::span<const uint8_t> counted) const {
  const size_t n = tokens.size();
  if (expert_of_token.size() != n || (!domains.empty() && domains.size() != n) ||
      (!counted.empty() && counted.size() != n)) {
    throw std::invalid_argument(
        fmt::format("ExpertUse: {} tokens, {} domains, {} experts, {} marks of what is counted", n,
                    domains.size(), expert_of_token.size(), counted.size()));
  }
  for (size_t i = 0; i < n; ++i) {
    if (!counted.empty() && counted[i] == 0) continue;
    const int64_t token = tokens[i], expert = expert_of_token[i];
    const int64_t domain = domains.empty() ? -1 : domains[i];
    if (token < 0 || token >= vocabulary_ || expert < 0 || expert >= experts_ || domain < -1 ||
        domain >= static_cast<int64_t>(domains_.size())) {
      throw std::invalid_argument(
          fmt::format("ExpertUse: token {} of {}, domain {} of {}, expert {} of {} at position {}",
                      token, vocabulary_, domain, domains_.size(), expert, experts_, i));
    }
  }
}

void ExpertUse::add(std::span<const int64_t> tokens, std::span<const int32_t> domains,
                    std::span<const int32_t> expert_of_token, std::span<const uint8_t> counted) {
  check(tokens, domains, expert_of_token, counted);
  const auto vocabulary = static_cast<size_t>(vocabulary_);
  double* loads = counts_.data();
  double* by_token = loads + experts_;
  double* by_domain = by_token + experts_ * vocabulary_;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!counted.empty() && counted[i] == 0) continue;
    const auto expert = static_cast<size_t>(expert_of_token[i]);
    loads[expert] += 1;
    by_token[expert * vocabulary + static_cast<size_t>(tokens[i])] += 1;
    if (domains.empty() || domains[i] < 0) continue;
    by_domain[expert * domains_.size() + static_cast<size_t>(domains[i])] += 1;
  }
}

int64_t ExpertUse::total() const {
  const auto loads = expert_loads();
  return whole(std::reduce(loads.begin(), loads.end()));
}

std::vector<int64_t> ExpertUse::loads() const { return whole(expert_loads()); }

size_t ExpertUse::checked(int64_t expert) const {
  if (expert >= 0 && expert < experts_) return static_cast<size_t>(expert);
  throw std::invalid_argument(fmt::format("ExpertUse: expert {} of {}", expert, experts_));
}

std::vector<int64_t> ExpertUse::domain_loads(int64_t expert) const {
  return whole(by_domain().subspan(checked(expert) * domains_.size(), domains_.size()));
}

double ExpertUse::busiest_share() const {
  const int64_t total = this->total();
  if (total == 0) return 0;
  return std::ranges::max(expert_loads()) * static_cast<double>(experts_) /
         static_cast<double>(total);
}

std::vector<int64_t> ExpertUse::dead_experts() const {
  std::vector<int64_t> dead;
  if (total() / experts_ < kFairShareToJudge) return dead;
  const std::vector<int64_t> loads = this->loads();
  for (int64_t expert = 0; expert < experts_; ++expert) {
    if (loads[static_cast<size_t>(expert)] == 0) dead.push_back(expert);
  }
  return dead;
}

double ExpertUse::domain_information() const {
  return information(by_domain(), static_cast<size_t>(experts_));
}

std::vector<int64_t> ExpertUse::tokens_of_domains() const {
  std::vector<double> sums(domains_.size());
  const auto cells = by_domain();
  for (size_t i = 0; i < cells.size(); ++i) sums[i % sums.size()] += cells[i];
  return whole(sums);
}

std::optional<double> ExpertUse::domain_bits() const {
  const auto judged = std::ranges::count_if(
      tokens_of_domains(), [](int64_t tokens) { return tokens >= record::kTokensOfADomain; });
  return judged < 2 ? std::nullopt : std::optional(domain_information());
}

double ExpertUse::token_information() const {
  return information(by_token(), static_cast<size_t>(experts_));
}

std::vector<ExpertUse::TopToken> ExpertUse::top_tokens(int64_t expert, size_t n) const {
  const auto vocabulary = static_cast<size_t>(vocabulary_);
  const auto cells = by_token();
  const auto row = cells.subspan(checked(expert) * vocabulary, vocabulary);
  std::vector<TopToken> top;
  for (size_t token = 0; token < vocabulary; ++token) {
    if (row[token] > 0) top.push_back({static_cast<int64_t>(token), whole(row[token]), 0});
  }
  const auto last = top.begin() + static_cast<ptrdiff_t>(std::min(n, top.size()));
  std::partial_sort(top.begin(), last, top.end(), [](const TopToken& a, const TopToken& b) {
    return a.count != b.count ? a.count > b.count : a.token < b.token;
  });
  top.erase(last, top.end());
  const double share = expert_loads()[checked(expert)] / static_cast<double>(total());
  for (TopToken& entry : top) {
    double everywhere = 0;
    for (size_t at = static_cast<size_t>(entry.token); at < cells.size(); at += vocabulary) {
      everywhere += cells[at];
    }
    entry.lift = static_cast<double>(entry.count) / everywhere / share;
  }
  return top;
}

}  // namespace ballast::inference
