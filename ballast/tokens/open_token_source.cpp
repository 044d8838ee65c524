// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/text/split_names.h"
#include "ballast/tokens/token_dataset.h"
#include "ballast/tokens/token_file.h"
#include "ballast/tokens/token_shard.h"
#include "ballast/tokens/token_source.h"

namespace ballast::tokens {
namespace {

fs::path with_suffix(fs::path path, const char* suffix) { return path += suffix; }

std::unique_ptr<TokenSource> open_bin_or_its_index(const fs::path& path) {
  const fs::path index = fs::path(path).replace_extension(".idx");
  return fs::exists(index) ? open_megatron_index(index) : open_bin_file(path);
}

// llm.c and nanoGPT name their files by split: train.bin, val.bin, fineweb_train_000001.bin.
std::unique_ptr<TokenSource> open_folder_of_bins(const fs::path& folder, const std::string& split) {
  std::set<fs::path> chosen;
  size_t bins = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".bin") continue;
    ++bins;
    const std::set<text::Split> named = text::splits_named(entry.path().stem().string());
    if (named.size() > 1) {
      fail("{} may be of several splits by its name: rename it, or name the files to use",
           entry.path().string());
    }
    if (!named.empty() && text::name_of(*named.begin()) == split) chosen.insert(entry.path());
  }
  if (bins == 0) {
    fail(
        "{} holds neither a data set of `ballast prepare` (no {}) nor .bin token files: if it "
        "holds "
        "text, run `ballast prepare {} --out FOLDER` first",
        folder.string(), TokenDataset::kIndexFile, folder.string());
  }
  if (chosen.empty()) {
    fail(
        "{} holds .bin files, but none with the word \"{}\" in its name to use as the {} split: "
        "name "
        "a file",
        folder.string(), split == "valid" ? "val" : split, split);
  }
  std::vector<std::unique_ptr<TokenSource>> sources;
  for (const fs::path& path : chosen) {
    sources.push_back(open_bin_or_its_index(path));
    if (sources.back()->info().format != sources.front()->info().format) {
      fail("{}: {} is {} data but {} is {}: name the file to use", folder.string(),
           chosen.begin()->string(), sources.front()->info().format, path.string(),
           sources.back()->info().format);
    }
  }
  if (sources.size() == 1) return std::move(sources.front());
  TokenSourceInfo info = sources.front()->info();
  info.name = folder.string();
  return concatenate(std::move(sources), std::move(info));
}

// Names of domains are in the index alone. A shard is readable without it: then they are not known.
std::vector<std::string> domains_of(const TokenShard& shard) try {
  const fs::path path = shard.path().parent_path() / TokenDataset::kIndexFile;
  const DatasetIndex index = DatasetIndex::from_text(read_text(path), path);
  for (const auto& [name, split] : index.splits) {
    for (const ShardEntry& entry : split.shards) {
      const bool is_this = shard.path().filename() == entry.file && shard.counts() == entry.counts;
      if (is_this) return index.domains;
    }
  }
  return {};
} catch (const UserError&) {
  return {};
}

std::unique_ptr<TokenSource> open_shard(const fs::path& path) {
  const TokenShard shard(path);
  return shard.tokens(domains_of(shard));
}

std::unique_ptr<TokenSource> recognise_and_open(const fs::path& path, const std::string& split) {
  if (fs::is_directory(path)) {
    if (TokenDataset::is_dataset(path)) return TokenDataset(path).open(split);
    return open_folder_of_bins(path, split);
  }
  if (!fs::exists(path)) {
    // Megatron names a data set by what its .bin and .idx have in common.
    if (const auto index = with_suffix(path, ".idx"); fs::exists(index)) {
      return open_megatron_index(index);
    }
    fail("{} does not exist", path.string());
  }
  if (is_token_shard(path)) return open_shard(path);
  if (path.extension() == ".idx") return open_megatron_index(path);
  if (path.extension() == ".bin") return open_bin_or_its_index(path);
  fail(
      "{} is not token data (a folder of `ballast prepare`, .bin or .idx): if it is text, run "
      "`ballast prepare {} --out FOLDER` and use that folder",
      path.string(), path.string());
}

}  // namespace

std::unique_ptr<TokenSource> open_token_source(const fs::path& path, const std::string& split) {
  try {
    return recognise_and_open(path, split);
  } catch (const fs::filesystem_error& error) {  // e.g. a folder that may not be looked into
    fail("{}: {}", error.path1().string(), error.code().message());
  }
}

}  // namespace ballast::tokens
