// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/token_dataset.h"

#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/log.h"
#include "ballast/system/progress.h"

namespace ballast::tokens {
namespace {

// Throws unless the shard is the one the index describes.
void check_shard(const TokenShard& shard, const ShardEntry& entry, const DatasetIndex& index) {
  TokenizerIdentity wanted = index.tokenizer;
  wanted.kind.clear();
  if (shard.counts() != entry.counts || shard.tokenizer() != wanted) {
    fail(
        "{} is not the file its data set was written with: its header and {} differ: prepare the "
        "data again",
        shard.path().string(), TokenDataset::kIndexFile);
  }
}

}  // namespace

bool TokenDataset::is_dataset(const fs::path& folder) {
  return fs::is_regular_file(folder / kIndexFile);
}

bool TokenDataset::is_framed(const fs::path& folder) {
  const fs::path path = folder / kIndexFile;
  return is_dataset(folder) && DatasetIndex::from_text(read_text(path), path).is_framed;
}

TokenDataset::TokenDataset(const fs::path& folder) : folder_(folder) {
  const fs::path path = folder / kIndexFile;
  index_ = DatasetIndex::from_text(read_text(path), path);
  for (const auto& [name, split] : index_.splits) {
    std::vector<TokenShard>& shards = shards_[name];
    for (const ShardEntry& entry : split.shards) {
      if (!fs::exists(folder / entry.file)) {
        fail("{} is missing from the data set {}: prepare the data again",
             (folder / entry.file).string(), folder.string());
      }
      check_shard(shards.emplace_back(folder / entry.file), entry, index_);
    }
  }
}

const std::vector<TokenShard>& TokenDataset::shards(const std::string& split) const {
  const auto found = shards_.find(split);
  if (found != shards_.end()) return found->second;
  std::string names;
  for (const auto& [name, unused] : shards_) names += (names.empty() ? "" : ", ") + name;
  fail("{} has no split \"{}\", only: {}{}", folder_.string(), split, names,
       split == "valid" ? " (prepare the text with --valid or --valid-fraction)" : "");
}

std::unique_ptr<TokenSource> TokenDataset::open(const std::string& split) const {
  std::vector<std::unique_ptr<TokenSource>> sources;
  for (const TokenShard& shard : shards(split)) sources.push_back(shard.tokens(index_.domains));
  const TextTotals& totals = index_.splits.at(split).totals;
  return concatenate(std::move(sources), {.name = folder_.string() + " (" + split + ")",
                                          .format = "ballast",
                                          .vocabulary_size = index_.tokenizer.vocabulary_size,
                                          .end_of_text = index_.tokenizer.end_of_text,
                                          .tokenizer_fingerprint = index_.tokenizer.fingerprint,
                                          .tokenizer_folder = folder_,
                                          .source_bytes = totals.source_bytes,
                                          .nats = totals.nats});
}

std::unique_ptr<tokenizer::Tokenizer> TokenDataset::tokenizer() const {
  auto tokenizer = tokenizer::load_tokenizer(folder_.string());
  if (identity_of(*tokenizer) != index_.tokenizer) {
    fail("the tokenizer in {} is not the one its shards were written with: prepare the data again",
         folder_.string());
  }
  return tokenizer;
}

uint64_t TokenDataset::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [name, shards] : shards_) {
    for (const TokenShard& shard : shards) bytes += shard.bytes();
  }
  return bytes;
}

void TokenDataset::verify_tokenizer_files() const {
  if (index_.tokenizer_files.empty() && fs::exists(folder_ / "vocab.json")) {
    log_info(
        "{}: prepared before the tokenizer's files had checksums: vocab.json and merges.txt "
        "are not verified",
        folder_.string());
  }
  for (const TokenizerFile& expected : index_.tokenizer_files) {
    const fs::path path = folder_ / expected.file;
    if (checksum(MappedFile(path).bytes()) != expected.checksum) {
      fail("{} is damaged: its checksum is not the one in {}: prepare the data again",
           path.string(), kIndexFile);
    }
  }
}

void TokenDataset::verify() const {
  verify_tokenizer_files();
  Progress progress("checking " + folder_.string(), bytes(), "bytes");
  for (const auto& [name, shards] : shards_) {
    for (const TokenShard& shard : shards) {
      shard.verify();
      for (const DocumentPart& part : shard.parts()) {
        if (part.domain >= index_.domains.size()) {
          fail("{} is damaged: a document of domain {}, but there are {}", shard.path().string(),
               part.domain, index_.domains.size());
        }
      }
      progress.advance(shard.bytes());
    }
  }
  tokenizer();
}

std::vector<TokenizerFile> tokenizer_files_in(const fs::path& folder) {
  std::vector<TokenizerFile> files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"}) {
    if (fs::exists(folder / name))
      files.push_back({name, checksum(MappedFile(folder / name).bytes())});
  }
  return files;
}

void check_before_use(const fs::path& path) {
  if (!TokenDataset::is_dataset(path)) return;
  const TokenDataset dataset(path);
  if (dataset.bytes() <= kVerifiedBytes) return dataset.verify();
  log_info("{}: {} are not verified now; `ballast prepare --verify {}` does it", path.string(),
           format_bytes(static_cast<double>(dataset.bytes())), path.string());
}

}  // namespace ballast::tokens
