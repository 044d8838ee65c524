// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/expert_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>

#include "ballast/system/random.h"

namespace ballast::inference {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Tokens and where they went, one by one.
struct Routes {
  std::vector<int64_t> tokens;
  std::vector<int32_t> experts;

  void put(int64_t token, int64_t expert, int64_t times = 1) {
    tokens.insert(tokens.end(), static_cast<size_t>(times), token);
    experts.insert(experts.end(), static_cast<size_t>(times), static_cast<int32_t>(expert));
  }
};

ExpertUse use_of(const Routes& routes, int64_t experts, int64_t vocabulary) {
  ExpertUse use(experts, vocabulary, {});
  use.add(routes.tokens, {}, routes.experts, {});
  return use;
}

double log2_factorial(double n) { return std::lgamma(n + 1) / std::log(2); }
double log2_binomial(double n, double k) {
  return log2_factorial(n) - log2_factorial(k) - log2_factorial(n - k);
}

struct Tables {
  std::map<int64_t, double> token, expert;
  std::map<std::pair<int64_t, int64_t>, double> both;
  double total;
};

Tables tables_of(const Routes& routes) {
  Tables tables{.token = {}, .expert = {}, .both = {}, .total = 0};
  for (size_t i = 0; i < routes.tokens.size(); ++i) {
    tables.token[routes.tokens[i]] += 1;
    tables.expert[routes.experts[i]] += 1;
    tables.both[{routes.tokens[i], routes.experts[i]}] += 1;
    tables.total += 1;
  }
  return tables;
}

// Mutual information of the counts as they are, in bits, from three entropies.
double plain_information(const Routes& routes) {
  const Tables tables = tables_of(routes);
  const auto entropy = [&](const auto& counts) {
    double bits = 0;
    for (const auto& [key, count] : counts) bits -= count * std::log2(count / tables.total);
    return bits / tables.total;
  };
  return entropy(tables.token) + entropy(tables.expert) - entropy(tables.both);
}

// Its mean over all ways to deal the experts' places to the tokens, by hypergeometric
// probabilities.
double chance_information(const Routes& routes) {
  const Tables tables = tables_of(routes);
  const double n = tables.total;
  double bits = 0;
  for (const auto& [token, a] : tables.token) {
    for (const auto& [expert, b] : tables.expert) {
      for (double k = std::max(1.0, a + b - n); k <= std::min(a, b); ++k) {
        const double log2_p =
            log2_binomial(a, k) + log2_binomial(n - a, b - k) - log2_binomial(n, b);
        bits += std::exp2(log2_p) * k / n * std::log2(k * n / (a * b));
      }
    }
  }
  return bits;
}

// Experts for tokens with frequencies as 1 / rank; in `signal` of all cases token % experts.
Routes zipf_routes(uint64_t seed, size_t count, int64_t vocabulary, int64_t experts,
                   double signal) {
  std::vector<double> cumulative;
  for (int64_t rank = 1; rank <= vocabulary; ++rank) {
    cumulative.push_back((rank > 1 ? cumulative.back() : 0) + 1 / static_cast<double>(rank));
  }
  RandomStream random(seed, "zipf routes");
  Routes routes;
  for (size_t i = 0; i < count; ++i) {
    const double place = random.uniform() * cumulative.back();
    const int64_t token =
        std::upper_bound(cumulative.begin(), cumulative.end() - 1, place) - cumulative.begin();
    const bool by_token = random.uniform() < signal;
    const auto any = static_cast<int64_t>(random.below(static_cast<uint64_t>(experts)));
    routes.put(token, by_token ? token % experts : any);
  }
  return routes;
}

TEST(ExpertUse, CountsWhatItIsGiven) {
  ExpertUse use(3, 5, {"wiki", "code"});
  const std::vector<int64_t> tokens{4, 4, 0, 1, 4, -7};
  const std::vector<int32_t> domains{0, 1, 1, -1, 1, 9}, experts{2, 2, 0, 2, 0, 99};
  use.add(tokens, domains, experts, std::vector<uint8_t>{1, 1, 1, 1, 1, 0});
  EXPECT_EQ(use.total(), 5);
  EXPECT_THAT(use.loads(), ElementsAre(2, 0, 3));
  EXPECT_THAT(use.domain_loads(0), ElementsAre(0, 2));
  EXPECT_THAT(use.domain_loads(1), ElementsAre(0, 0));
  EXPECT_THAT(use.domain_loads(2), ElementsAre(1, 1));
  EXPECT_DOUBLE_EQ(use.busiest_share(), 3 / (5 / 3.0));
  EXPECT_THAT(use.counts(), ElementsAre(2, 0, 3,                                      // loads
                                        1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2,  // tokens
                                        0, 2, 0, 0, 1, 1));                           // domains
}

TEST(ExpertUse, RefusesWhatDoesNotFitAndCountsNoneOfIt) {
  ExpertUse use(2, 4, {"wiki"});
  const std::vector<int64_t> tokens{0, 1};
  const std::vector<int32_t> experts{0, 1};
  const auto refused = [&](std::vector<int64_t> t, std::vector<int32_t> d, std::vector<int32_t> e,
                           std::vector<uint8_t> c) {
    EXPECT_THROW(use.add(t, d, e, c), std::invalid_argument);
  };
  refused({0, 4}, {}, experts, {});
  refused({0, -1}, {}, experts, {});
  refused(tokens, {0, 1}, experts, {});
  refused(tokens, {0, -2}, experts, {});
  refused(tokens, {}, {0, 2}, {});
  refused(tokens, {}, {0, -1}, {});
  refused(tokens, {}, {0}, {});
  refused(tokens, {0}, experts, {});
  refused(tokens, {}, experts, {1});
  EXPECT_EQ(use.total(), 0);
  EXPECT_THROW(ExpertUse(0, 4, {}), std::invalid_argument);
  EXPECT_THROW(ExpertUse(4, 0, {}), std::invalid_argument);
  EXPECT_THROW(use.top_tokens(2, 1), std::invalid_argument);
  EXPECT_THROW(use.domain_loads(-1), std::invalid_argument);
}

TEST(ExpertUse, WithoutTokensSaysNothing) {
  const ExpertUse use(4, 10, {"wiki"});
  EXPECT_EQ(use.total(), 0);
  EXPECT_EQ(use.busiest_share(), 0);
  EXPECT_EQ(use.token_information(), 0);
  EXPECT_EQ(use.domain_information(), 0);
  EXPECT_THAT(use.dead_experts(), IsEmpty());
  EXPECT_THAT(use.top_tokens(3, 5), IsEmpty());
}

TEST(ExpertUse, WorkersAddUp) {
  const Routes routes = zipf_routes(1, 3000, 40, 5, 0.5);
  std::vector<int32_t> domains(routes.tokens.size());
  for (size_t i = 0; i < domains.size(); ++i) domains[i] = static_cast<int32_t>(i * i % 4) - 1;
  const std::vector<std::string> names{"a", "b", "c"};
  ExpertUse all(5, 40, names), summed(5, 40, names);
  all.add(routes.tokens, domains, routes.experts, {});
  const size_t cuts[] = {0, 1000, 1000, 1001, 3000};  // one worker has nothing
  for (size_t worker = 0; worker < 4; ++worker) {
    const size_t begin = cuts[worker], count = cuts[worker + 1] - begin;
    ExpertUse part(5, 40, names);
    part.add(std::span(routes.tokens).subspan(begin, count),
             std::span(domains).subspan(begin, count),
             std::span(routes.experts).subspan(begin, count), {});
    for (size_t i = 0; i < summed.counts().size(); ++i) summed.counts()[i] += part.counts()[i];
  }
  EXPECT_TRUE(std::ranges::equal(summed.counts(), all.counts()));
  EXPECT_EQ(summed.loads(), all.loads());
  EXPECT_EQ(summed.token_information(), all.token_information());
  EXPECT_EQ(summed.domain_information(), all.domain_information());
  EXPECT_GT(all.domain_information() + all.token_information(), 0);
}

TEST(ExpertUse, ShowsBalanceAndDeadExperts) {
  Routes routes;
  for (int expert = 0; expert < 3; ++expert) routes.put(0, expert, 85);
  ExpertUse use = use_of(routes, 4, 1);  // 255 tokens, fewer than 64 for each of four
  EXPECT_THAT(use.dead_experts(), IsEmpty());
  EXPECT_DOUBLE_EQ(use.busiest_share(), 4 / 3.0);
  routes.put(0, 1);
  use = use_of(routes, 4, 1);
  EXPECT_THAT(use.dead_experts(), ElementsAre(3));
  routes.put(0, 3);
  EXPECT_THAT(use_of(routes, 4, 1).dead_experts(), IsEmpty());
  Routes collapsed;
  collapsed.put(0, 2, 1000);
  EXPECT_EQ(use_of(collapsed, 4, 1).busiest_share(), 4);
  EXPECT_THAT(use_of(collapsed, 4, 1).dead_experts(), ElementsAre(0, 1, 3));
}

TEST(ExpertUse, ListsTheMostFrequentTokensOfAnExpert) {
  Routes routes;
  routes.put(7, 0, 2);
  routes.put(3, 0, 2);
  routes.put(9, 0, 5);
  routes.put(1, 0, 1);
  routes.put(9, 1, 25);
  routes.put(3, 1, 5);
  const ExpertUse use = use_of(routes, 3, 10);  // 10 tokens and 30
  const auto top = use.top_tokens(0, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 9);
  EXPECT_EQ(top[0].count, 5);
  EXPECT_DOUBLE_EQ(top[0].lift, (5 / 10.0) / (30 / 40.0));
  EXPECT_EQ(top[1].token, 3);
  EXPECT_DOUBLE_EQ(top[1].lift, (2 / 10.0) / (7 / 40.0));
  EXPECT_EQ(top[2].token, 7);
  EXPECT_DOUBLE_EQ(top[2].lift, 40 / 10.0);
  EXPECT_EQ(use.top_tokens(0, 100).size(), 4u);
  EXPECT_THAT(use.top_tokens(0, 0), IsEmpty());
  EXPECT_THAT(use.top_tokens(2, 3), IsEmpty());
}

// Fixed by hand: a token's expert is known for sure, or says nothing.
TEST(ExpertUse, InformationHasItsKnownValues) {
  constexpr int64_t kTimes = 100'000;
  Routes decided, independent;
  for (int64_t token = 0; token < 16; ++token) {
    decided.put(token, token % 8, kTimes);
    for (int64_t expert = 0; expert < 8; ++expert) independent.put(token, expert, kTimes / 8);
  }
  // Less than decided by chance's share, here (16 - 1) (8 - 1) / (2 ln 2) bits / 1.6 million.
  const double chance = 15 * 7 / (2 * std::log(2.0)) / (16 * kTimes);
  EXPECT_NEAR(use_of(decided, 8, 16).token_information(), 3 - chance, 1e-3 * chance);
  EXPECT_EQ(use_of(independent, 8, 16).token_information(), 0);
  Routes collapsed;  // one expert takes all: nothing to know
  for (int64_t token = 0; token < 16; ++token) collapsed.put(token, 3, 10);
  EXPECT_NEAR(use_of(collapsed, 8, 16).token_information(), 0, 1e-15);
}

TEST(ExpertUse, InformationOfDomainsIsOverThoseKnown) {
  ExpertUse use(2, 1, {"wiki", "code", "never"});
  const size_t known = 200'000;
  std::vector<int32_t> domains(known + 1000, -1), experts(known + 1000, 0);
  for (size_t i = 0; i < known; ++i) domains[i] = experts[i] = static_cast<int32_t>(i % 2);
  const std::vector<int64_t> tokens(domains.size(), 0);
  use.add(tokens, domains, experts, {});
  // Two by two: chance makes 1 / (2 ln 2) bits in all.
  EXPECT_NEAR(use.domain_information(), 1 - 1 / (2 * std::log(2.0) * known), 1e-9);
  EXPECT_EQ(use_of({tokens, experts}, 2, 1).domain_information(), 0);
  ExpertUse none(2, 1, {"wiki"});
  none.add(tokens, {}, experts, {});
  EXPECT_EQ(none.domain_information(), 0);
}

TEST(ExpertUse, OfDomainsWithFewTokensNothingIsSaid) {
  const auto of = [](const std::vector<int64_t>& tokens_of_domain) {
    std::vector<int32_t> domains, experts;
    for (size_t domain = 0; domain < tokens_of_domain.size(); ++domain) {
      domains.insert(domains.end(), static_cast<size_t>(tokens_of_domain[domain]),
                     static_cast<int32_t>(domain));
    }
    for (const int32_t domain : domains) experts.push_back(domain % 2);
    ExpertUse use(2, 1, {"wiki", "code", "few"});
    use.add(std::vector<int64_t>(domains.size(), 0), domains, experts, {});
    EXPECT_EQ(use.tokens_of_domains(), tokens_of_domain);
    return use;
  };
  EXPECT_EQ(of({2000, 1999, 0}).domain_bits(), std::nullopt);
  EXPECT_EQ(of({0, 0, 0}).domain_bits(), std::nullopt);
  const ExpertUse enough = of({2000, 2000, 3});
  EXPECT_EQ(enough.domain_bits(), enough.domain_information());
  EXPECT_EQ(ExpertUse(2, 1, {}).domain_bits(), std::nullopt);
}

TEST(ExpertUse, ChanceIsTheMeanOverAllWaysToDeal) {
  Routes routes{.tokens = {0, 0, 0, 1, 1, 2, 3}, .experts = {0, 0, 0, 1, 1, 1, 2}};
  Routes dealt = routes;
  double sum = 0, ways = 0;
  std::ranges::sort(dealt.experts);
  do {  // every distinct order is as likely as any other
    sum += plain_information(dealt);
    ways += 1;
  } while (std::ranges::next_permutation(dealt.experts).found);
  ASSERT_EQ(ways, 140);  // 7! / (3! 3! 1!)
  // The reference takes logarithms of factorials up to 7!: a few roundings of numbers below 13.
  EXPECT_NEAR(chance_information(routes), sum / ways, 1e-13);
  EXPECT_NEAR(use_of(routes, 3, 4).token_information(), plain_information(routes) - sum / ways,
              1e-14);
}

TEST(ExpertUse, InformationEqualsThePlainSums) {
  uint64_t seed = 0;
  for (const int64_t experts : {2, 3, 8}) {
    for (const int64_t vocabulary : {2, 7, 100}) {
      for (const size_t count : {20, 500, 4000}) {
        const Routes routes = zipf_routes(++seed, count, vocabulary, experts, 0.7);
        const double expected = plain_information(routes) - chance_information(routes);
        ASSERT_GT(expected, 0.01);  // else the bound at 0 would hide it
        // Logarithms of factorials of 4000 are near 50000: 1e-16 of that, in a few hundred terms.
        EXPECT_NEAR(use_of(routes, experts, vocabulary).token_information(), expected, 1e-9)
            << experts << " experts, " << vocabulary << " tokens, " << count << " times";
      }
    }
  }
}

// Most of a large vocabulary is rare: plain counts take its random experts for knowledge.
TEST(ExpertUse, RandomRoutesOfRareTokensCarryNoInformation) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Routes routes = zipf_routes(seed, 20'000, 5000, 16, 0);
    ASSERT_GT(plain_information(routes), 0.6);
    // Twice 20000 ln 2 times it is about chi-squared, of at most 4999 * 15 degrees of freedom, and
    // so has a standard deviation of at most 390 / 27700 = 0.014 bits; three of them.
    EXPECT_LT(use_of(routes, 16, 5000).token_information(), 0.042) << seed;
  }
}

// Half of the text decides its expert, the other half is tokens seen once, of which nothing is
// known.
TEST(ExpertUse, FrequentTokensCountAndThoseSeenOnceDoNot) {
  constexpr int64_t kTimes = 2000, kOnce = 16 * kTimes;
  Routes routes;
  for (int64_t token = 0; token < 16; ++token) routes.put(token, token, kTimes);
  for (int64_t i = 0; i < kOnce; ++i) routes.put(16 + i, i % 16);
  ASSERT_NEAR(plain_information(routes), 4, 1e-9);
  // Chance: 2 bits for those seen once. For the others half of log2(e) bits in each of 256 cells,
  // less the shares, 1/16 and 1/32, of their rows and columns; the next order is 1/125 of that.
  const double frequent = 256 * (15 / 16.0) * (31 / 32.0) / (2 * std::log(2.0)) / (2 * kOnce);
  EXPECT_NEAR(use_of(routes, 16, 16 + kOnce).token_information(), 2 - frequent, frequent / 125);
}

TEST(ExpertUse, CountsOfALongRunAreNoProblem) {
  ExpertUse use(2, 1, {"wiki", "code"});
  const auto by_domain = use.counts().last(4);  // [experts, domains]
  by_domain[0] = by_domain[3] = 1e12;
  EXPECT_NEAR(use.domain_information(), 1, 1e-9);
  std::ranges::fill(by_domain, 1e12);
  EXPECT_NEAR(use.domain_information(), 0, 1e-9);
}

}  // namespace
}  // namespace ballast::inference
