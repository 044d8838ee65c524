// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ballast/text/text_reader.h"

namespace ballast::text {

enum class TextFormat {
  kByName,     // .jsonl and .ndjson, .parquet (and what starts like it); all else is plain text
  kPlain,      // documents are separated by lines: document_splitter.h
  kJsonLines,  // json_lines.h
  kParquet,    // parquet_plugin.h
};

enum class DomainsBy {
  kInput,   // an input is a domain
  kFile,    // a file below a folder is one, named by its path from there
  kFolder,  // a folder right below a folder is one; a file that is given is of its folder's
};

enum class SplitNames { kObeyed, kIgnored };

struct ListOptions {
  TextFormat format = TextFormat::kByName;
  DomainsBy domains = DomainsBy::kInput;
  SplitNames split_names = SplitNames::kObeyed;
};

struct TextFile {
  std::filesystem::path path;  // "-": standard input
  TextFormat format = TextFormat::kPlain;
  size_t input = 0;     // which of the inputs it comes from
  uint32_t domain = 0;  // index into FileList::domains
  Split split = Split::kUnsaid;
};

struct SkippedFile {
  std::filesystem::path path;  // of a hidden folder: all that is in it
  std::string reason;          // in words that follow "is"
};

struct FileList {
  std::vector<TextFile> files;       // in the order in which they are read
  std::vector<SkippedFile> skipped;  // below folders
  std::vector<std::string> domains;
  std::vector<std::filesystem::path> inputs;

  bool has(Split split) const;
};

// The files of text that the inputs name. An input is
//   FILE        text, decompressed where it is gzip or zstd
//   DIRECTORY   all text files below it, sorted by path. Skipped are names that start with a dot,
//               empty files, and what is not text (not_text.h) by its first bytes, decompressed.
//               Links to files are followed, links to directories below it are not.
//   -           standard input
//   NAME=INPUT  any of these, as domain NAME
// A domain's name is NAME, or that of the file or directory without ".gz" or ".zst", the last
// extension ("wiki.train.txt.zst": "wiki.train"), a shard's number ("-00000-of-00012") and, where
// they are obeyed, words that name a split; "stdin" for "-". What is left empty is named by its
// folder. Equal names are one domain. Of several inputs, kFile and kFolder name INPUT/NAME.
// Words that name a split (split_names.h) count in a file's name and, below a directory, in the
// folders' up to that directory's own. They are ignored where nothing would be left to train on.
// Throws UserError if there is no input, or an input is missing, unreadable, not text, or has no
// text that can be seen at once.
FileList list_text_files(const std::vector<std::filesystem::path>& inputs,
                         const ListOptions& options = {});

}  // namespace ballast::text
