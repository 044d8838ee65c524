// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "ballast/text/corpus_domains.h"
#include "ballast/text/corpus_words.h"
#include "ballast/text/derivation.h"

namespace ballast::text {
namespace {

struct Derivation {
  std::string text;
  double probability;
};

// Which choices of a text are enumerated: all, or `branching` ones after `skip` drawn at random,
// with two alternatives each; what comes after takes the first alternative.
struct Window {
  size_t skip = 0, branching = 1000000, width = 1000000;
  uint64_t seed = 0;
};

// Makes the choices of a window in all ways. Knows nothing of how texts are sampled or searched.
class Enumerator : public Chooser {
 public:
  explicit Enumerator(Window window) : window_(window) {}

  std::vector<Derivation> run(Grammar grammar) {
    std::vector<Derivation> all;
    do {
      depth_ = 0;
      current_ = {"", 1.0};
      grammar(*this);
      all.push_back(current_);
      while (!path_.empty() && ++path_.back().choice == path_.back().size) path_.pop_back();
    } while (!path_.empty());
    return all;
  }

  size_t choose(std::span<const uint32_t> weights) override {
    return decide({weights.begin(), weights.end()});
  }
  size_t choose_below(size_t n) override { return decide(std::vector<double>(n, 1.0)); }
  size_t say(const Words& words, uint64_t excluded) override {
    std::vector<double> weights;
    for (size_t i = 0; i < words.size(); ++i) {
      weights.push_back((excluded >> i & 1) != 0 ? 0.0 : words.weight(i));
    }
    const size_t i = decide(weights);
    emit(words[i]);
    return i;
  }
  size_t say_one_of(std::span<const std::string_view> words) override {
    const size_t i = choose_below(words.size());
    emit(words[i]);
    return i;
  }
  int say_number(int low, int high) override {
    const int number = low + static_cast<int>(choose_below(static_cast<size_t>(high - low) + 1));
    emit(std::to_string(number));
    return number;
  }
  void emit(std::string_view text) override { current_.text += text; }

 private:
  struct Decision {
    size_t choice, size;
  };

  size_t decide(const std::vector<double>& weights) {
    std::vector<size_t> candidates;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] > 0) candidates.push_back(i);
    }
    const size_t width = depth_ < window_.skip                       ? 1
                         : depth_ < window_.skip + window_.branching ? window_.width
                                                                     : 1;
    if (depth_ < window_.skip + window_.branching && width < candidates.size()) {
      const uint64_t turn = random_bits(window_.seed, "test/window", depth_) % candidates.size();
      std::rotate(candidates.begin(), candidates.begin() + static_cast<long>(turn),
                  candidates.end());
    }
    candidates.resize(std::min(candidates.size(), width));
    if (depth_ == path_.size()) path_.push_back({0, candidates.size()});
    const size_t choice = candidates.at(path_[depth_++].choice);
    double sum = 0;
    for (const size_t i : candidates) sum += weights[i];
    current_.probability *= weights[choice] / sum;
    return choice;
  }

  Window window_;
  std::vector<Decision> path_;
  size_t depth_ = 0;
  Derivation current_;
};

constexpr Words kColours = Words::zipf({"red", "reddish", "blue", "green"});

// Every kind of choice, choices seen late, words that start with other words, and a drawn length.
void toy_grammar(Chooser& out) {
  const size_t hidden = out.choose_below(3);
  for (int items = 0; items < 1 || (items < 3 && !out.chance(1, 3)); ++items) {
    const size_t colour = out.say(kColours);
    out.write("-");
    out.say(kColours, only(colour));
    out.write(" ");
  }
  const int number = out.say_number(8, 12);
  static constexpr std::array<std::string_view, 2> kMarks = {"!", "!!"};
  out.say_one_of(kMarks);
  out.write(number * 2, ".", hidden);
  if (out.choose({3, 0, 2}) == 2) out.write(" end");
}

// "aa" can be one long word or two short ones.
void ambiguous_grammar(Chooser& out) {
  if (out.chance(1, 2)) {
    out.write("aa");
  } else {
    out.write("a");
    out.write(out.chance(1, 4) ? "b" : "a");
  }
}

TEST(Grammar, ProbabilitiesSumToOneAndNoTwoDerivationsGiveTheSameText) {
  double sum = 0;
  std::map<std::string, double> texts;
  for (const auto& [text, probability] : Enumerator({}).run(toy_grammar)) {
    sum += probability;
    EXPECT_TRUE(texts.emplace(text, probability).second) << text;
  }
  EXPECT_EQ(texts.size(), 3U * (12 + 12 * 12 + 12 * 12 * 12) * 5 * 2 * 2);
  EXPECT_NEAR(sum, 1.0, 1e-10);
}

TEST(Grammar, SearchFindsTheDerivationAndItsProbability) {
  const auto all = Enumerator({}).run(toy_grammar);
  for (size_t i = 0; i < all.size(); i += 97) {
    const Derivations found = find_derivations(toy_grammar, all[i].text, 10);
    EXPECT_EQ(found.count, 1U) << all[i].text;
    EXPECT_NEAR(found.nats, -std::log(all[i].probability), 1e-9);
  }
}

TEST(Grammar, SearchSeesAmbiguityAndForeignText) {
  EXPECT_EQ(find_derivations(ambiguous_grammar, "aa", 10).count, 2U);
  EXPECT_EQ(find_derivations(ambiguous_grammar, "aa", 1).count, 1U);
  EXPECT_EQ(find_derivations(ambiguous_grammar, "ab", 10).count, 1U);
  EXPECT_NEAR(find_derivations(ambiguous_grammar, "ab", 10).nats, std::log(8.0), 1e-12);
  for (const char* text : {"", "a", "aab", "b", "aa "}) {
    EXPECT_EQ(find_derivations(ambiguous_grammar, text, 10).count, 0U) << text;
  }
  EXPECT_EQ(find_derivations(toy_grammar, "red-red 8!16.0", 10).count, 0U) << "excluded word";
  EXPECT_EQ(find_derivations(toy_grammar, "red-blue 08!16.0", 10).count, 0U) << "leading zero";
  EXPECT_EQ(find_derivations(toy_grammar, "red-blue 8!17.0", 10).count, 0U) << "wrong sum";
  EXPECT_EQ(find_derivations(toy_grammar, "red-blue 8!16.0", 10).count, 1U);
}

TEST(Grammar, SamplesFollowTheLawThatTheyClaim) {
  // Texts are grouped by their first 11 bytes, so that every group is expected often enough.
  std::map<std::string, double> expected, seen;
  for (const auto& [text, p] : Enumerator({}).run(toy_grammar)) expected[text.substr(0, 11)] += p;
  constexpr int kSamples = 200000;
  double claimed = 0, entropy = 0;
  for (int i = 0; i < kSamples; ++i) {
    const SampledText sample = sample_text(toy_grammar, RandomStream(5, "test/grammar", i));
    ++seen[sample.text.substr(0, 11)];
    claimed += sample.nats / kSamples;
  }
  for (const auto& [text, p] : Enumerator({}).run(toy_grammar)) entropy -= p * std::log(p);
  double chi_square = 0;
  for (const auto& [group, p] : expected) {
    ASSERT_GT(p * kSamples, 5) << group;
    chi_square += std::pow(seen[group] - p * kSamples, 2) / (p * kSamples);
  }
  const auto freedom = static_cast<double>(expected.size() - 1);
  EXPECT_NEAR(chi_square, freedom, 5 * std::sqrt(2 * freedom));
  EXPECT_NEAR(claimed, entropy, 0.02);
}

struct Case {
  const char* name;
  Grammar grammar;
};

class DomainGrammar : public testing::TestWithParam<Case> {};

// A thousand ways to make ten choices in a row somewhere in a document: all must look different.
TEST_P(DomainGrammar, NoTwoDerivationsGiveTheSameText) {
  size_t total = 0;
  for (uint64_t trial = 0; trial < 24; ++trial) {
    const Window window{.skip = 2 * trial, .branching = 10, .width = 2, .seed = trial};
    std::vector<std::string> texts;
    for (auto& derivation : Enumerator(window).run(GetParam().grammar)) {
      texts.push_back(std::move(derivation.text));
    }
    total += texts.size();
    std::sort(texts.begin(), texts.end());
    const auto twice = std::adjacent_find(texts.begin(), texts.end());
    ASSERT_EQ(twice, texts.end()) << "trial " << trial << ":\n" << *twice;
  }
  EXPECT_GT(total, 10000U);
}

INSTANTIATE_TEST_SUITE_P(
    All, DomainGrammar,
    testing::Values(Case{"arithmetic", write_arithmetic}, Case{"dialogue", write_dialogue},
                    Case{"ledgers", write_ledger}, Case{"programs", write_program},
                    Case{"recipes", write_recipe}, Case{"weather", write_weather}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ballast::text
