// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/derivation.h"

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace ballast::text {
namespace {

double log_of(uint64_t n) {
  static const auto table = [] {
    std::array<double, 1024> logs{};
    for (size_t i = 1; i < logs.size(); ++i) logs[i] = std::log(static_cast<double>(i));
    return logs;
  }();
  return n < table.size() ? table[n] : std::log(static_cast<double>(n));
}

bool contains(uint64_t set, size_t i) { return (set >> i & 1) != 0; }

uint64_t total_weight(const Words& words, uint64_t excluded) {
  uint64_t total = words.total_weight();
  for (size_t i = 0; excluded != 0 && i < words.size(); ++i) {
    if (contains(excluded, i)) total -= words.weight(i);
  }
  return total;
}

class Sampler : public Chooser {
 public:
  explicit Sampler(RandomStream random) : random_(random) { sampled_.text.reserve(2048); }
  SampledText take() { return std::move(sampled_); }

  size_t choose(std::span<const uint32_t> weights) override {
    const uint64_t total = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
    uint64_t left = random_.below(total);
    size_t i = 0;
    for (; left >= weights[i]; ++i) left -= weights[i];
    sampled_.nats += log_of(total) - log_of(weights[i]);
    return i;
  }

  size_t choose_below(size_t n) override {
    sampled_.nats += log_of(n);
    return random_.below(n);
  }

  size_t say(const Words& words, uint64_t excluded) override {
    const uint64_t total = total_weight(words, excluded);
    uint64_t left = random_.below(total);
    size_t i = 0;
    for (;; ++i) {
      if (contains(excluded, i)) continue;
      if (left < words.weight(i)) break;
      left -= words.weight(i);
    }
    sampled_.nats += log_of(total) - log_of(words.weight(i));
    sampled_.text += words[i];
    return i;
  }

  size_t say_one_of(std::span<const std::string_view> words) override {
    const size_t i = choose_below(words.size());
    sampled_.text += words[i];
    return i;
  }

  int say_number(int low, int high) override {
    const int number = low + static_cast<int>(choose_below(static_cast<size_t>(high - low) + 1));
    sampled_.text += std::to_string(number);
    return number;
  }

  void emit(std::string_view text) override { sampled_.text += text; }

 private:
  RandomStream random_;
  SampledText sampled_;
};

// Depth-first search: the path of choices made so far is replayed, then continued with the first
// candidates that agree with the text; a text that disagrees is a dead end.
class Search : public Chooser {
 public:
  explicit Search(std::string_view text) : text_(text) {}

  Derivations run(Grammar grammar, size_t limit) {
    Derivations found;
    do {
      depth_ = position_ = 0;
      nats_ = 0;
      try {
        grammar(*this);
        if (position_ != text_.size()) continue;
      } catch (const DeadEnd&) {
        continue;
      }
      ++found.count;
      found.nats = nats_;
    } while (found.count < limit && advance());
    return found;
  }

  size_t choose(std::span<const uint32_t> weights) override {
    const size_t i = decide([&](std::vector<size_t>& candidates) {
      for (size_t j = 0; j < weights.size(); ++j) {
        if (weights[j] > 0) candidates.push_back(j);
      }
    });
    nats_ += choice_nats(weights, i);
    return i;
  }

  size_t choose_below(size_t n) override {
    nats_ += log_of(n);
    return decide([&](std::vector<size_t>& candidates) {
      for (size_t j = 0; j < n; ++j) candidates.push_back(j);
    });
  }

  size_t say(const Words& words, uint64_t excluded) override {
    const size_t i = decide([&](std::vector<size_t>& candidates) {
      for (size_t j = 0; j < words.size(); ++j) {
        if (!contains(excluded, j) && rest().starts_with(words[j])) candidates.push_back(j);
      }
    });
    nats_ += log_of(total_weight(words, excluded)) - log_of(words.weight(i));
    emit(words[i]);
    return i;
  }

  size_t say_one_of(std::span<const std::string_view> words) override {
    const size_t i = decide([&](std::vector<size_t>& candidates) {
      for (size_t j = 0; j < words.size(); ++j) {
        if (rest().starts_with(words[j])) candidates.push_back(j);
      }
    });
    nats_ += log_of(words.size());
    emit(words[i]);
    return i;
  }

  int say_number(int low, int high) override {
    const size_t number = decide([&](std::vector<size_t>& candidates) {
      size_t value = 0;
      for (const char c : rest().substr(0, 9)) {
        if (c < '0' || c > '9') break;
        value = value * 10 + static_cast<size_t>(c - '0');
        if (value > static_cast<size_t>(high)) break;
        if (value >= static_cast<size_t>(low)) candidates.push_back(value);
        if (value == 0) break;  // "05" is not how numbers are written
      }
    });
    nats_ += log_of(static_cast<size_t>(high - low) + 1);
    write(number);
    return static_cast<int>(number);
  }

  void emit(std::string_view text) override {
    if (!rest().starts_with(text)) throw DeadEnd{};
    position_ += text.size();
  }

 private:
  struct DeadEnd {};
  struct Decision {
    std::vector<size_t> candidates;  // the last one is being tried
  };

  std::string_view rest() const { return text_.substr(position_); }

  template <typename Collect>
  size_t decide(Collect collect) {
    if (depth_ == path_.size()) {
      Decision decision;
      collect(decision.candidates);
      if (decision.candidates.empty()) throw DeadEnd{};
      path_.push_back(std::move(decision));
    }
    return path_[depth_++].candidates.back();
  }

  bool advance() {
    while (!path_.empty()) {
      path_.back().candidates.pop_back();
      if (!path_.back().candidates.empty()) return true;
      path_.pop_back();
    }
    return false;
  }

  std::string_view text_;
  std::vector<Decision> path_;
  size_t depth_ = 0, position_ = 0;
  double nats_ = 0;
};

}  // namespace

double choice_nats(std::span<const uint32_t> weights, size_t choice) {
  const uint64_t total = std::accumulate(weights.begin(), weights.end(), uint64_t{0});
  return log_of(total) - log_of(weights[choice]);
}

SampledText sample_text(Grammar grammar, RandomStream random) {
  Sampler sampler(random);
  grammar(sampler);
  return sampler.take();
}

Derivations find_derivations(Grammar grammar, std::string_view text, size_t limit) {
  return Search(text).run(grammar, limit);
}

}  // namespace ballast::text
