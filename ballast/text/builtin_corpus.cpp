// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/builtin_corpus.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/random.h"
#include "ballast/text/corpus_domains.h"
#include "ballast/text/derivation.h"

namespace ballast::text {
namespace {

constexpr std::array<Grammar, 6> kGrammars = {write_arithmetic, write_dialogue, write_ledger,
                                              write_program,    write_recipe,   write_weather};

double domain_nats() { return std::log(static_cast<double>(kGrammars.size())); }

class BuiltinReader : public TextReader {
 public:
  BuiltinReader(uint64_t seed, std::string split, uint64_t bytes_wanted)
      : corpus_(seed), split_(std::move(split)), bytes_wanted_(bytes_wanted) {}

  bool next(TextPiece& piece) override {
    if (bytes_written_ >= bytes_wanted_) return false;
    BuiltinCorpus::Document document = corpus_.document(split_, next_index_++);
    bytes_written_ += document.text.size();
    piece = {.text = std::move(document.text),
             .ends_document = true,
             .domain = document.domain,
             .nats = document.nats};
    return true;
  }

  const std::vector<std::string>& domains() const override { return BuiltinCorpus::domains(); }
  uint64_t total_bytes() const override { return bytes_wanted_; }
  uint64_t bytes_read() const override { return std::min(bytes_written_, bytes_wanted_); }

 private:
  BuiltinCorpus corpus_;
  std::string split_;
  uint64_t bytes_wanted_, bytes_written_ = 0, next_index_ = 0;
};

}  // namespace

BuiltinCorpus::Document BuiltinCorpus::document(std::string_view split, uint64_t index) const {
  std::string purpose = "builtin corpus ";
  purpose += split;
  RandomStream random(seed_, purpose, index);
  const auto domain = static_cast<uint32_t>(random.below(kGrammars.size()));
  SampledText sampled = sample_text(kGrammars[domain], random);
  return {std::move(sampled.text), domain, sampled.nats + domain_nats()};
}

const std::vector<std::string>& BuiltinCorpus::domains() {
  static const std::vector<std::string> names = {"arithmetic", "dialogue", "ledgers",
                                                 "programs",   "recipes",  "weather"};
  return names;
}

std::optional<double> BuiltinCorpus::nats_of(std::string_view text) {
  for (const Grammar grammar : kGrammars) {
    const Derivations found = find_derivations(grammar, text, 1);
    if (found.count > 0) return found.nats + domain_nats();
  }
  return std::nullopt;
}

std::unique_ptr<TextReader> read_builtin_corpus(uint64_t seed, std::string split,
                                                uint64_t bytes_wanted) {
  if (bytes_wanted == 0) fail("the built-in corpus: want at least one byte of text, got 0");
  return std::make_unique<BuiltinReader>(seed, std::move(split), bytes_wanted);
}

}  // namespace ballast::text
