// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/tokenizer.h"

#include <filesystem>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/tokenizer/bpe_files.h"
#include "ballast/tokenizer/bpe_tokenizer.h"

namespace ballast::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "tokenizer_config.json";

std::unique_ptr<Tokenizer> tokenizer_of(BpeVocabulary vocabulary, std::vector<KeptFile> files) {
  if (vocabulary == byte_vocabulary()) return std::make_unique<ByteTokenizer>();
  return std::make_unique<BpeTokenizer>(std::move(vocabulary), std::move(files));
}

std::unique_ptr<Tokenizer> load_json(const fs::path& path) {
  std::vector<KeptFile> files = {{"tokenizer.json", read_text(path)}};
  TokenizerConfig config{.text = {}, .path = path.parent_path() / kConfigFile};
  std::error_code ignored;  // what cannot be looked at does not exist for us
  if (fs::exists(config.path, ignored)) {
    config.text = read_text(config.path);
    files.push_back({kConfigFile, config.text});
  }
  BpeVocabulary vocabulary = parse_tokenizer_json(files.front().bytes, path, config);
  return tokenizer_of(std::move(vocabulary), std::move(files));
}

std::unique_ptr<Tokenizer> load_files(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    fail(
        "no tokenizer at {}: give `bytes`, a tokenizer.json, or a folder with tokenizer.json or "
        "vocab.json and merges.txt in it",
        path.string());
  }
  if (!fs::is_directory(path, ignored)) return load_json(path);
  if (fs::exists(path / "tokenizer.json", ignored)) return load_json(path / "tokenizer.json");
  if (fs::exists(path / "vocab.json", ignored) && fs::exists(path / "merges.txt", ignored)) {
    return tokenizer_of(read_vocab_and_merges(path / "vocab.json", path / "merges.txt"), {});
  }
  fail("the folder {} holds no tokenizer: neither tokenizer.json nor vocab.json with merges.txt",
       path.string());
}

}  // namespace

const TextFrame& Tokenizer::frame() const {
  static const TextFrame none;
  return none;
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids) const {
  std::string text;
  for (const TokenId id : ids) text += token_bytes(id);
  return text;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name_or_path) {
  if (name_or_path == "bytes") return std::make_unique<ByteTokenizer>();
  return load_files(name_or_path);
}

}  // namespace ballast::tokenizer
