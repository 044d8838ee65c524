// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ballast {

// Words (or phrases) with whole-number weights: p(i) = weight(i) / sum of weights. At most 64, so
// that a set of them fits into a uint64_t (bit i for word i). The text must outlive this object.
class Words {
 public:
  static Words uniform(std::initializer_list<std::string_view> words);
  static Words zipf(std::initializer_list<std::string_view> words);  // p(i) ~ 1 / (i + 8)

  size_t size() const { return words_.size(); }
  std::string_view operator[](size_t i) const { return words_[i]; }
  uint32_t weight(size_t i) const { return weights_[i]; }
  std::span<const uint32_t> weights() const { return weights_; }

 private:
  Words(std::vector<std::string_view> words, std::vector<uint32_t> weights);

  std::vector<std::string_view> words_;
  std::vector<uint32_t> weights_;
};

// A probabilistic grammar is a procedure that writes a text through a Chooser: where the text could
// go on in several ways it asks. Whoever implements Chooser decides: by chance (sample_text), or by
// what a given text says (find_derivations). The probability of a derivation is the product of the
// probabilities of its choices. Procedures must end for any choices and depend on nothing else.
class Chooser {
 public:
  virtual ~Chooser() = default;

  // An index with probability weights[i] / sum(weights). A weight of 0 excludes; one must be
  // positive.
  virtual size_t choose(std::span<const uint32_t> weights) = 0;
  // A number below n, uniformly.
  virtual size_t choose_below(size_t n) = 0;
  // Chooses a word that is not in the set `excluded` and writes it.
  virtual size_t say(const Words& words, uint64_t excluded = 0) = 0;
  // Chooses one of the words uniformly and writes it.
  virtual size_t say_one_of(std::span<const std::string_view> words) = 0;
  // Chooses a whole number in [low, high] uniformly and writes it. REQUIRES: 0 <= low <= high.
  virtual int say_number(int low, int high) = 0;
  virtual void emit(std::string_view text) = 0;

  size_t choose(std::initializer_list<uint32_t> weights) {
    return choose(std::span(weights.begin(), weights.size()));
  }
  bool chance(uint32_t times, uint32_t out_of) { return choose({out_of - times, times}) == 1; }
  // Writes the parts, which are text or whole numbers, one after another.
  template <typename... Parts>
  void write(const Parts&... parts) {
    (write_part(parts), ...);
  }

 private:
  void write_part(std::string_view text) { emit(text); }
  void write_part(std::integral auto number) { emit(std::to_string(number)); }
};

using Grammar = void (*)(Chooser&);

}  // namespace ballast
