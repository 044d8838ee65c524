// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ballast::inference {

// Counts which tokens, of which domains, went to which experts of one layer. Counts are exact up to
// 2^53. What the caller gets wrong is std::invalid_argument.
class ExpertUse {
 public:
  // Experts with fewer tokens than this at a fair share are not judged to be dead.
  static constexpr int64_t kFairShareToJudge = 64;

  // `domains` are names; empty: domains are not known.
  ExpertUse(int64_t experts, int64_t vocabulary, std::vector<std::string> domains);

  int64_t experts() const { return experts_; }
  int64_t vocabulary() const { return vocabulary_; }
  const std::vector<std::string>& domains() const { return domains_; }

  // Token i, of domain domains[i] (-1, or an empty span: not known), went to expert_of_token[i].
  // Only those with counted[i] != 0 are looked at; an empty span: all. Throws before it counts any.
  void add(std::span<const int64_t> tokens, std::span<const int32_t> domains,
           std::span<const int32_t> expert_of_token, std::span<const uint8_t> counted);
  // Everything that was counted, as [experts] loads, [experts, vocabulary] and [experts, domains]
  // one after another: summed element by element over workers, it is what all of them counted.
  std::span<double> counts() { return counts_; }
  std::span<const double> counts() const { return counts_; }

  int64_t total() const;               // tokens
  std::vector<int64_t> loads() const;  // tokens of each expert
  // Tokens of each domain that went to an expert.
  std::vector<int64_t> domain_loads(int64_t expert) const;
  // Load of the busiest expert over total / experts: 1 is balance, `experts` the worst; 0 without
  // tokens.
  double busiest_share() const;
  // Experts without a token, once total / experts is at least kFairShareToJudge; none before.
  std::vector<int64_t> dead_experts() const;

  // Mutual information of a token's domain, or id, and its expert, in bits, beyond chance: that of
  // the counts less its mean over all ways to deal the same tokens out to the same loads. Routes
  // that depend on neither have 0 on average, however rare the tokens are; plain counts would give
  // them up to log2(experts). It errs low: for a token seen n times by about
  // (experts - 1) / (2 n ln 2) bits, for one seen once by all there is to know. It takes tokens for
  // independent, which neighbours in a text are not quite. Never below 0. That of domains is over
  // the tokens whose domain is known, 0 where there are none.
  double domain_information() const;
  double token_information() const;
  // That of domains, where two of them have at least record::kTokensOfADomain; else nothing is
  // said.
  std::optional<double> domain_bits() const;
  std::vector<int64_t> tokens_of_domains() const;  // of all experts together

  struct TopToken {
    int64_t token = 0;
    int64_t count = 0;  // how often it went to the expert
    double lift = 0;    // its share of the expert's tokens over its share of all tokens
  };
  // The tokens that most often went to an expert, at most n: by falling count, then by id.
  std::vector<TopToken> top_tokens(int64_t expert, size_t n) const;

 private:
  void check(std::span<const int64_t> tokens, std::span<const int32_t> domains,
             std::span<const int32_t> expert_of_token, std::span<const uint8_t> counted) const;
  size_t checked(int64_t expert) const;  // throws for one that does not exist
  std::span<const double> expert_loads() const;
  std::span<const double> by_token() const;   // [experts, vocabulary]
  std::span<const double> by_domain() const;  // [experts, domains]

  int64_t experts_, vocabulary_;
  std::vector<std::string> domains_;
  std::vector<double> counts_;
};

}  // namespace ballast::inference
