// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/tokenizer.h"

#include <filesystem>

#include "ballast/system/error.h"
#include "ballast/tokenizer/bpe_files.h"
#include "ballast/tokenizer/bpe_tokenizer.h"

namespace ballast::tokenizer {
namespace {

namespace fs = std::filesystem;

BpeVocabulary read_vocabulary(const fs::path& path) {
  std::error_code ignored;  // what cannot be looked at does not exist for us
  if (!fs::exists(path, ignored)) {
    fail(
        "no tokenizer at {}: give `bytes`, a tokenizer.json, or a folder with tokenizer.json or "
        "vocab.json and merges.txt in it",
        path.string());
  }
  if (!fs::is_directory(path, ignored)) return read_tokenizer_json(path);
  if (fs::exists(path / "tokenizer.json", ignored)) {
    return read_tokenizer_json(path / "tokenizer.json");
  }
  if (fs::exists(path / "vocab.json", ignored) && fs::exists(path / "merges.txt", ignored)) {
    return read_vocab_and_merges(path / "vocab.json", path / "merges.txt");
  }
  fail("the folder {} holds no tokenizer: neither tokenizer.json nor vocab.json with merges.txt",
       path.string());
}

}  // namespace

std::string Tokenizer::decode(const std::vector<TokenId>& ids) const {
  std::string text;
  for (const TokenId id : ids) text += token_bytes(id);
  return text;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path) {
  if (name_or_path == "bytes") return std::make_unique<ByteTokenizer>();
  BpeVocabulary vocabulary = read_vocabulary(name_or_path);
  if (vocabulary == byte_vocabulary()) return std::make_unique<ByteTokenizer>();
  return std::make_unique<BpeTokenizer>(std::move(vocabulary));
}

}  // namespace ballast::tokenizer
