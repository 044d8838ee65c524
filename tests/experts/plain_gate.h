// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace ballast::test {

// The gates of one routing group, written down as they are defined: token by token, in doubles.
struct PlainGate {
  int64_t experts = 1, of_token = 1;  // 1: Switch, 2: Sparsely Gated
  int64_t capacity = 0;               // tokens an expert takes; 0: all
  // A number in [0, 1) for each token: its second expert is used if that is below twice its weight.
  std::vector<double> draws = {};  // empty: always

  struct Token {
    std::vector<double> probabilities;     // of all experts
    std::vector<int64_t> expert;           // best first
    std::vector<double> weight;            // of those
    std::vector<bool> is_used, has_place;  // of those
  };

  std::vector<Token> route(const std::vector<std::vector<double>>& logits) const {
    std::vector<Token> tokens;
    for (const auto& row : logits) tokens.push_back(choose(row));
    std::vector<int64_t> taken(static_cast<size_t>(experts));
    for (size_t choice = 0; choice < static_cast<size_t>(of_token); ++choice) {
      for (size_t t = 0; t < tokens.size(); ++t) {
        Token& token = tokens[t];
        const bool is_used = choice == 0 || draws.empty() || draws[t] < 2 * token.weight[choice];
        int64_t& load = taken[static_cast<size_t>(token.expert[choice])];
        token.is_used.push_back(is_used);
        token.has_place.push_back(is_used && (capacity == 0 || load < capacity));
        if (token.has_place.back()) ++load;
      }
    }
    return tokens;
  }

  // E sum_e (share of first choices) (mean probability).
  double balance_loss(const std::vector<Token>& tokens) const {
    double loss = 0;
    for (int64_t e = 0; e < experts; ++e) {
      double first = 0, probability = 0;
      for (const Token& token : tokens) {
        first += token.expert[0] == e ? 1 : 0;
        probability += token.probabilities[static_cast<size_t>(e)];
      }
      const auto count = static_cast<double>(tokens.size());
      loss += static_cast<double>(experts) * (first / count) * (probability / count);
    }
    return loss;
  }

 private:
  Token choose(const std::vector<double>& logits) const {
    Token token;
    const double highest = *std::ranges::max_element(logits);
    double sum = 0, of_chosen = 0;
    for (const double logit : logits) sum += std::exp(logit - highest);
    for (const double logit : logits)
      token.probabilities.push_back(std::exp(logit - highest) / sum);
    std::vector<bool> used(logits.size());
    for (int64_t choice = 0; choice < of_token; ++choice) {
      size_t best = logits.size();
      for (size_t e = 0; e < logits.size(); ++e) {  // of equal ones the first
        if (!used[e] && (best == logits.size() || logits[e] > logits[best])) best = e;
      }
      used[best] = true;
      token.expert.push_back(static_cast<int64_t>(best));
      token.weight.push_back(token.probabilities[best]);
      of_chosen += token.probabilities[best];
    }
    if (of_token > 1)
      for (double& weight : token.weight) weight /= of_chosen;
    return token;
  }
};

}  // namespace ballast::test
