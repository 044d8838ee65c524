// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ballast/system/file.h"
#include "ballast/tokenizer/bpe_files.h"

namespace ballast::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

// Tokens and ids in the order of ids.
Json vocab_of(const BpeVocabulary& vocabulary) {
  Json vocab = Json::object();
  auto& entries = vocab.get_ref<Json::object_t&>();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    // Not vocab[token]: an ordered object searches all it has before it adds.
    entries.emplace_back(vocabulary.tokens[id], id);
  }
  return vocab;
}

std::string merge_text(const BpeVocabulary& vocabulary, const Merge& merge) {
  return fmt::format("{} {}", vocabulary.tokens[merge.left], vocabulary.tokens[merge.right]);
}

Json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", true}};
}

}  // namespace

void write_tokenizer_json(const BpeVocabulary& vocabulary, const fs::path& folder) {
  Json added = Json::array();
  for (const AddedToken& token : vocabulary.added) {
    added.push_back({{"id", token.id},
                     {"content", vocabulary.tokens[token.id]},
                     {"single_word", token.single_word},
                     {"lstrip", token.left_strip},
                     {"rstrip", token.right_strip},
                     {"normalized", token.normalized},
                     {"special", token.special}});
  }
  Json merges = Json::array();  // "a b", which older versions of `tokenizers` read too
  for (const Merge& merge : vocabulary.merges) merges.push_back(merge_text(vocabulary, merge));
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"unk_token", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", false},
                {"byte_fallback", false},
                {"ignore_merges", false},
                {"vocab", vocab_of(vocabulary)},
                {"merges", std::move(merges)}};
  const Json json = {{"version", "1.0"},          {"truncation", nullptr},
                     {"padding", nullptr},        {"added_tokens", std::move(added)},
                     {"normalizer", nullptr},     {"pre_tokenizer", byte_level()},
                     {"post_processor", nullptr}, {"decoder", byte_level()},
                     {"model", std::move(model)}};
  make_folder(folder);
  write_text_atomically(folder / "tokenizer.json", json.dump(2) + "\n");
}

void write_vocab_and_merges(const BpeVocabulary& vocabulary, const fs::path& folder) {
  std::string merges = "#version: 0.2\n";
  for (const Merge& merge : vocabulary.merges) merges += merge_text(vocabulary, merge) + "\n";
  make_folder(folder);
  write_text_atomically(folder / "vocab.json", vocab_of(vocabulary).dump() + "\n");
  write_text_atomically(folder / "merges.txt", merges);
}

}  // namespace ballast::tokenizer
