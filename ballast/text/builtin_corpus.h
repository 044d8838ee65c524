// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/text/text_reader.h"

namespace ballast::text {

// Documents written by a probabilistic grammar: endless text to learn from without any file, whose
// exact probability is known. docs/builtin_corpus.md describes the domains and the law.
// Thread-safe.
class BuiltinCorpus {
 public:
  struct Document {
    std::string text;  // UTF-8, a few hundred to two thousand bytes
    uint32_t domain;   // index into domains()
    double nats;       // -log p(text): the choice of the domain and the document's end included
  };

  explicit BuiltinCorpus(uint64_t seed) : seed_(seed) {}

  // A pure function of (seed, split, index). Splits ("train", "valid", ...) are independent.
  Document document(std::string_view split, uint64_t index) const;

  // Equally likely, in the order of Document::domain.
  static const std::vector<std::string>& domains();

  // -log p(text) for any text, found by parsing it; nothing if the grammar cannot write it. Takes
  // about a millisecond for a document: for checking samples of a model, not for whole corpora.
  static std::optional<double> nats_of(std::string_view text);

 private:
  uint64_t seed_;
};

// The documents of a split in the order of their index, until their texts have at least
// `bytes_wanted` bytes in all. Every document is one piece with its nats. total_bytes() is
// `bytes_wanted`.
std::unique_ptr<TextReader> read_builtin_corpus(uint64_t seed, std::string split,
                                                uint64_t bytes_wanted);

}  // namespace ballast::text
