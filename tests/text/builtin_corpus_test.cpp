// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/builtin_corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/text/corpus_domains.h"
#include "ballast/text/derivation.h"

namespace ballast::text {
namespace {

constexpr std::array<Grammar, 6> kGrammars = {write_arithmetic, write_dialogue, write_ledger,
                                              write_program,    write_recipe,   write_weather};

TEST(BuiltinCorpus, DocumentIsAPureFunctionOfSeedSplitAndIndex) {
  const BuiltinCorpus corpus(7), same(7), other(8);
  std::vector<std::string> forwards, backwards;
  for (uint64_t i = 0; i < 50; ++i) forwards.push_back(corpus.document("train", i).text);
  for (uint64_t i = 50; i-- > 0;) backwards.push_back(same.document("train", i).text);
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(forwards, backwards);
  for (uint64_t i = 0; i < 50; ++i) {
    EXPECT_NE(corpus.document("train", i).text, other.document("train", i).text);
    EXPECT_NE(corpus.document("train", i).text, corpus.document("valid", i).text);
  }
}

// Pins the law and the random numbers: a change here changes the data of every recorded run.
TEST(BuiltinCorpus, StaysTheSameFromVersionToVersion) {
  const BuiltinCorpus corpus(1);
  StreamingChecksum checksum;
  double nats = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const auto document = corpus.document("train", i);
    checksum.update(std::as_bytes(std::span(document.text)));
    nats += document.nats;
  }
  EXPECT_EQ(checksum_hex(checksum.value()), "4ebd74fa45020fbd");
  EXPECT_NEAR(nats, 191948.40313586246, 1e-6);
}

TEST(BuiltinCorpus, NoDocumentOccursTwice) {
  const BuiltinCorpus corpus(1);
  std::unordered_set<std::string> texts;
  for (const char* split : {"train", "valid"}) {
    for (uint64_t i = 0; i < 10000; ++i) {
      EXPECT_TRUE(texts.insert(corpus.document(split, i).text).second) << split << " " << i;
    }
  }
}

TEST(BuiltinCorpus, DomainsAreEquallyLikely) {
  const BuiltinCorpus corpus(3);
  ASSERT_EQ(BuiltinCorpus::domains().size(), kGrammars.size());
  std::array<double, kGrammars.size()> counts{};
  constexpr int kDocuments = 12000;
  for (uint64_t i = 0; i < kDocuments; ++i) ++counts[corpus.document("train", i).domain];
  const double p = 1.0 / counts.size(), deviation = std::sqrt(kDocuments * p * (1 - p));
  for (const double count : counts) EXPECT_NEAR(count, kDocuments * p, 5 * deviation);
}

TEST(BuiltinCorpus, EveryDocumentHasOneDerivationWithTheProbabilityItClaims) {
  const BuiltinCorpus corpus(11);
  std::array<int, kGrammars.size()> checked{};
  for (uint64_t i = 0; i < 900; ++i) {
    const auto document = corpus.document("valid", i);
    size_t derivations = 0;
    double nats = 0;
    for (size_t domain = 0; domain < kGrammars.size(); ++domain) {
      const Derivations found = find_derivations(kGrammars[domain], document.text, 3);
      derivations += found.count;
      if (found.count > 0) {
        EXPECT_EQ(domain, document.domain);
        nats = found.nats + std::log(static_cast<double>(kGrammars.size()));
      }
    }
    ASSERT_EQ(derivations, 1U) << document.text;
    ASSERT_NEAR(nats, document.nats, 1e-9 * document.nats) << document.text;
    ++checked[document.domain];
  }
  EXPECT_THAT(checked, testing::Each(testing::Gt(100)));
}

TEST(BuiltinCorpus, NatsOfATextAreThoseOfTheLaw) {
  const BuiltinCorpus corpus(4);
  for (uint64_t i = 0; i < 30; ++i) {
    const auto document = corpus.document("train", i);
    const auto nats = BuiltinCorpus::nats_of(document.text);
    ASSERT_TRUE(nats.has_value()) << document.text;
    EXPECT_NEAR(*nats, document.nats, 1e-9 * document.nats);
    EXPECT_FALSE(BuiltinCorpus::nats_of(document.text + "\n"));
    EXPECT_FALSE(BuiltinCorpus::nats_of(document.text.substr(0, document.text.size() - 1)));
  }
  EXPECT_FALSE(BuiltinCorpus::nats_of(""));
  EXPECT_FALSE(BuiltinCorpus::nats_of("Hello, world!\n"));
}

// The last number of a document follows from the rest (a total, a maximum, a printed value).
TEST(BuiltinCorpus, AWrongResultIsNotInTheLanguage) {
  const BuiltinCorpus corpus(5);
  int changed = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    auto document = corpus.document("train", i);
    const size_t digit = document.text.find_last_of("0123456789");
    if (BuiltinCorpus::domains()[document.domain] == "dialogue") continue;
    document.text[digit] =
        document.text[digit] == '9' ? '8' : static_cast<char>(document.text[digit] + 1);
    EXPECT_FALSE(BuiltinCorpus::nats_of(document.text)) << document.text;
    ++changed;
  }
  EXPECT_GT(changed, 100);
}

TEST(BuiltinCorpus, EntropyPerByteLeavesMuchToLearn) {
  const BuiltinCorpus corpus(1);
  const auto& domains = BuiltinCorpus::domains();
  std::vector<double> nats(domains.size()), bytes(domains.size());
  for (uint64_t i = 0; i < 20000; ++i) {
    const auto document = corpus.document("train", i);
    nats[document.domain] += document.nats;
    bytes[document.domain] += static_cast<double>(document.text.size());
  }
  double all_nats = 0, all_bytes = 0;
  for (size_t i = 0; i < domains.size(); ++i) {
    const double bits = nats[i] / bytes[i] / std::log(2.0);
    std::printf("%-11s %.3f bits per byte\n", domains[i].c_str(), bits);
    RecordProperty(domains[i], std::to_string(bits));
    EXPECT_GT(bits, 0.3) << domains[i];
    EXPECT_LT(bits, 1.2) << domains[i];
    all_nats += nats[i];
    all_bytes += bytes[i];
  }
  const double bits = all_nats / all_bytes / std::log(2.0);
  std::printf("%-11s %.3f bits per byte\n", "all", bits);
  EXPECT_GT(bits, 0.4);
  EXPECT_LT(bits, 1.2);
}

TEST(BuiltinCorpus, DocumentsAreOfModerateLengthAndNeverGuessable) {
  const BuiltinCorpus corpus(1);
  int usual = 0;
  constexpr int kDocuments = 10000;
  for (uint64_t i = 0; i < kDocuments; ++i) {
    const auto document = corpus.document("train", i);
    EXPECT_GE(document.text.size(), 200U);
    EXPECT_LE(document.text.size(), 2000U);
    EXPECT_EQ(document.text.back(), '\n');
    EXPECT_GT(document.nats, 55) << "no document is drawn twice in any run";
    usual += document.text.size() >= 300 && document.text.size() <= 1200;
  }
  EXPECT_GT(usual, kDocuments * 9 / 10);
}

TEST(BuiltinCorpus, UsesManyWordsSomeOften) {
  const BuiltinCorpus corpus(1);
  std::map<std::string, int> counts;
  int total = 0;
  for (uint64_t i = 0; i < 5000; ++i) {
    std::string word;
    for (const char c : corpus.document("train", i).text) {
      const auto byte = static_cast<unsigned char>(c);
      ASSERT_TRUE(c == '\n' || (byte >= ' ' && byte < 0x7f) || byte == 0xc2 || byte == 0xb0);
      if (std::isalpha(byte) != 0) {
        word += c;
      } else if (!word.empty()) {
        ++counts[std::exchange(word, "")];
        ++total;
      }
    }
  }
  EXPECT_GT(counts.size(), 900U);
  std::vector<int> sorted;
  for (const auto& [word, count] : counts) sorted.push_back(count);
  std::sort(sorted.rbegin(), sorted.rend());
  const auto share = [&](size_t n) {
    return std::accumulate(sorted.begin(), sorted.begin() + static_cast<long>(n), 0.0) / total;
  };
  std::printf("%zu words; the first 10, 100 make up %.2f, %.2f of the text\n", counts.size(),
              share(10), share(100));
  EXPECT_GT(share(10), 0.15);
  EXPECT_GT(share(100), 0.4);
  EXPECT_LT(share(100), 0.8);
}

TEST(BuiltinCorpus, ReaderYieldsDocumentsInOrderUntilThereIsEnough) {
  const BuiltinCorpus corpus(9);
  const auto reader = read_builtin_corpus(9, "valid", 20000);
  EXPECT_EQ(reader->domains(), BuiltinCorpus::domains());
  EXPECT_EQ(reader->total_bytes(), 20000U);
  EXPECT_EQ(reader->bytes_read(), 0U);
  uint64_t index = 0, bytes = 0, last = 0;
  for (TextPiece piece; reader->next(piece); ++index) {
    const auto document = corpus.document("valid", index);
    EXPECT_EQ(piece.text, document.text);
    EXPECT_EQ(piece.domain, document.domain);
    EXPECT_EQ(piece.nats, document.nats);
    EXPECT_TRUE(piece.ends_document);
    last = piece.text.size();
    bytes += last;
    EXPECT_EQ(reader->bytes_read(), std::min<uint64_t>(bytes, 20000));
  }
  EXPECT_GE(bytes, 20000U);
  EXPECT_LT(bytes - last, 20000U);
  EXPECT_THROW(read_builtin_corpus(9, "valid", 0), UserError);
}

}  // namespace
}  // namespace ballast::text
