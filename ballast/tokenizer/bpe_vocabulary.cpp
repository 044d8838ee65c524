// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/bpe_vocabulary.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <unordered_set>

#include "ballast/system/checksum.h"

namespace ballast::tokenizer {
namespace {

// Printable characters of Latin-1 stand for themselves, the other bytes for U+0100 and up, in
// order.
std::array<uint16_t, 256> make_code_points() {
  std::array<uint16_t, 256> code_points{};
  uint16_t next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    code_points[b] = printable ? static_cast<uint16_t>(b) : next++;
  }
  return code_points;
}

const std::array<uint16_t, 256>& code_points() {
  static const std::array<uint16_t, 256> table = make_code_points();
  return table;
}

constexpr uint16_t kNoByte = 256;
constexpr size_t kAlphabetEnd = 0x144;  // one past the last character's code point

std::array<uint16_t, kAlphabetEnd> make_bytes_by_code_point() {
  std::array<uint16_t, kAlphabetEnd> bytes{};
  bytes.fill(kNoByte);
  for (uint16_t b = 0; b < 256; ++b) bytes[code_points()[b]] = b;
  return bytes;
}

void hash_number(StreamingChecksum& hash, uint64_t number) {
  hash.update(std::as_bytes(std::span(&number, 1)));
}

void hash_text(StreamingChecksum& hash, std::string_view text) {
  hash_number(hash, text.size());
  hash.update(std::as_bytes(std::span(text)));
}

}  // namespace

const std::array<std::string, 256>& byte_level_alphabet() {
  static const std::array<std::string, 256> alphabet = [] {
    std::array<std::string, 256> result;
    for (int b = 0; b < 256; ++b) {
      const uint16_t c = code_points()[b];
      if (c >= 0x80) result[b].push_back(static_cast<char>(0xC0 | c >> 6));
      result[b].push_back(static_cast<char>(c < 0x80 ? c : 0x80 | (c & 0x3F)));
    }
    return result;
  }();
  return alphabet;
}

const std::array<uint8_t, 256>& byte_level_order() {
  static const std::array<uint8_t, 256> order = [] {
    std::array<uint8_t, 256> result{};
    std::iota(result.begin(), result.end(), uint8_t{0});
    std::sort(result.begin(), result.end(),
              [](uint8_t a, uint8_t b) { return code_points()[a] < code_points()[b]; });
    return result;
  }();
  return order;
}

std::optional<std::string> byte_level_bytes(std::string_view token) {
  static const std::array<uint16_t, kAlphabetEnd> bytes_by_code_point = make_bytes_by_code_point();
  std::string bytes;
  for (size_t i = 0; i < token.size(); ++i) {
    uint32_t c = static_cast<uint8_t>(token[i]);
    if (c >= 0x80) {  // the alphabet needs two bytes of UTF-8 at most
      if (c < 0xC0 || c >= 0xE0 || i + 1 == token.size()) return std::nullopt;
      c = (c & 0x1F) << 6 | (static_cast<uint8_t>(token[++i]) & 0x3F);
    }
    if (c >= kAlphabetEnd || bytes_by_code_point[c] == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(bytes_by_code_point[c]));
  }
  return bytes;
}

std::string bytes_of_token(std::string_view token) {
  return byte_level_bytes(token).value_or(std::string(token));
}

BpeVocabulary byte_vocabulary() {
  BpeVocabulary vocabulary;
  const auto& alphabet = byte_level_alphabet();
  vocabulary.tokens.assign(alphabet.begin(), alphabet.end());
  vocabulary.tokens.emplace_back(kEndOfText);
  vocabulary.end_of_text = 256;
  vocabulary.added.push_back({.id = 256});
  return vocabulary;
}

void drop_repeated_merges(std::vector<Merge>& merges) {
  std::unordered_set<uint64_t> seen;
  const auto kept = std::remove_if(merges.rbegin(), merges.rend(), [&](const Merge& merge) {
    return !seen.insert(uint64_t{merge.left} << 32 | merge.right).second;
  });
  merges.erase(merges.begin(), kept.base());
}

uint64_t fingerprint_of(const BpeVocabulary& vocabulary) {
  StreamingChecksum hash;
  hash_number(hash, vocabulary.tokens.size());
  for (const std::string& token : vocabulary.tokens) hash_text(hash, token);
  hash_number(hash, vocabulary.merges.size());
  for (const Merge& merge : vocabulary.merges) {
    hash_number(hash, uint64_t{merge.left} << 32 | merge.right);
  }
  // Two passes give other ids than one only where both have something to look for.
  std::vector<AddedToken> added = vocabulary.added;
  const auto is_normalized = [](const AddedToken& token) { return token.normalized; };
  const bool two_passes = std::any_of(added.begin(), added.end(), is_normalized) &&
                          !std::all_of(added.begin(), added.end(), is_normalized);
  std::sort(added.begin(), added.end(), [](auto& a, auto& b) { return a.id < b.id; });
  for (const AddedToken& token : added) {
    hash_number(hash, uint64_t{token.id} << 1 | (two_passes && token.normalized));
  }
  hash_number(hash, vocabulary.end_of_text);
  // Whatever GPT-2's files do not have comes after what they have: theirs stay what they were.
  if (vocabulary.pipeline != TextPipeline()) {
    hash_text(hash, description_of(vocabulary.pipeline));
    for (const AddedToken& token : added) hash_number(hash, token.normalized);
  }
  for (const AddedToken& token : added) {
    const int sides = token.left_strip << 2 | token.right_strip << 1 | int{token.single_word};
    if (sides != 0) hash_number(hash, uint64_t{token.id} << 3 | static_cast<uint64_t>(sides));
  }
  return hash.value();
}

}  // namespace ballast::tokenizer
