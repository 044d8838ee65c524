// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ballast::text {

// Words (or phrases) with whole-number weights: p(i) = weight(i) / total_weight(). At most 64, so
// that a set of them fits into a uint64_t (bit i for word i); no word twice.
class Words {
 public:
  static constexpr size_t kMaxWords = 64;

  static constexpr Words uniform(std::initializer_list<std::string_view> words) {
    return Words(words, [](size_t) { return uint32_t{1}; });
  }
  // p(i) ~ 1 / (i + 8)
  static constexpr Words zipf(std::initializer_list<std::string_view> words) {
    return Words(words, [](size_t i) { return static_cast<uint32_t>(20000 / (i + 8)); });
  }

  constexpr size_t size() const { return size_; }
  constexpr std::string_view operator[](size_t i) const { return words_[i]; }
  constexpr uint32_t weight(size_t i) const { return weights_[i]; }
  constexpr uint64_t total_weight() const { return total_; }

 private:
  constexpr Words(std::initializer_list<std::string_view> words, uint32_t (*weight)(size_t)) {
    for (const std::string_view word : words) {
      for (size_t i = 0; i < size_; ++i) {
        if (words_[i] == word) throw std::logic_error("Words: a word twice");
      }
      if (size_ == kMaxWords) throw std::logic_error("Words: too many");
      words_[size_] = word;
      weights_[size_] = weight(size_);
      total_ += weights_[size_++];
    }
  }

  std::array<std::string_view, kMaxWords> words_{};
  std::array<uint32_t, kMaxWords> weights_{};
  size_t size_ = 0;
  uint64_t total_ = 0;
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

}  // namespace ballast::text
