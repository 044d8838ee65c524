// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/tokens/token_shard.h"
#include "ballast/tokens/token_source.h"

namespace ballast::tokens {

// Totals over documents. `nats` is present only if the law of every document is known.
struct TextTotals {
  uint64_t documents = 0;
  uint64_t tokens = 0;  // end-of-text tokens included
  uint64_t source_bytes = 0;
  std::optional<double> nats = 0.0;
};

struct ShardEntry {
  std::string file;
  ShardCounts counts;
};

// A file of the tokenizer, which lies beside the shards.
struct TokenizerFile {
  std::string file;
  uint64_t checksum = 0;  // XXH3 of all its bytes
};

struct SplitIndex {
  TextTotals totals;
  std::vector<TextTotals> domains;  // one for each of DatasetIndex::domains
  std::vector<ShardEntry> shards;
};

// What index.json says.
struct DatasetIndex {
  TokenizerIdentity tokenizer;
  std::vector<TokenizerFile> tokenizer_files;  // empty: an older program wrote it
  bool is_framed = false;                      // documents stand within the tokenizer's frame
  std::vector<std::string> domains;
  std::map<std::string, SplitIndex> splits;  // "train", and "valid", "test" where there are

  std::string to_text() const;
  // `path` is for messages. Throws UserError for anything that to_text() would not have written.
  static DatasetIndex from_text(std::string_view text, const std::filesystem::path& path);
};

// A folder written by `ballast prepare`. Opening reads index.json and every shard's header.
class TokenDataset {
 public:
  static constexpr const char* kIndexFile = "index.json";
  static bool is_dataset(const std::filesystem::path& folder);
  // Whether it is one whose documents stand within the tokenizer's frame.
  static bool is_framed(const std::filesystem::path& folder);

  explicit TokenDataset(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const DatasetIndex& index() const { return index_; }
  const std::vector<TokenShard>& shards(const std::string& split) const;
  // All tokens of a split. Throws UserError naming the splits there are.
  std::unique_ptr<TokenSource> open(const std::string& split) const;
  // The tokenizer whose files lie in the folder; throws UserError if it is not the one that wrote
  // the shards.
  std::unique_ptr<tokenizer::Tokenizer> tokenizer() const;
  uint64_t bytes() const;  // of all shard files: what verify() reads
  // Reads every byte of every file, with a progress bar. Throws UserError naming the first that is
  // not as written.
  void verify() const;

 private:
  void verify_tokenizer_files() const;

  std::filesystem::path folder_;
  DatasetIndex index_;
  std::map<std::string, std::vector<TokenShard>> shards_;
};

// The files that a tokenizer was saved as in `folder`, with their checksums.
std::vector<TokenizerFile> tokenizer_files_in(const std::filesystem::path& folder);

// Before a data set is used: verifies all of it, or, where it is larger than `kVerifiedBytes`, says
// how that is done by hand. Anything that is no data set is left alone.
inline constexpr uint64_t kVerifiedBytes = 4'000'000'000;
void check_before_use(const std::filesystem::path& path);

}  // namespace ballast::tokens
