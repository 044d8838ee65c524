// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ballast/text/file_list.h"
#include "ballast/tokenizer/text_bounds.h"
#include "ballast/tokens/staged_folder.h"
#include "ballast/tokens/token_dataset.h"

namespace ballast::tokens {

struct PrepareRequest {
  std::vector<std::string> inputs = {};  // as list_text_files takes them, or the word "builtin"
  std::vector<std::string> valid_inputs = {};  // the validation text, where it is given
  std::filesystem::path out = {};
  ExistingOutput existing = ExistingOutput::kRefuse;
  double valid_fraction = 0.01;     // of the input, where no validation text is given; 0: none
  std::string tokenizer = "bytes";  // what load_tokenizer takes, or "bpe": train one on the input
  tokenizer::TokenId vocabulary_size = 8192;  // for "bpe"
  uint64_t sample_bytes = 100'000'000;  // of text, spread over the input, that "bpe" is trained on
  uint64_t shard_tokens = 100'000'000;  // at most, in one file
  size_t threads = 0;                   // 0: all cores
  uint64_t builtin_bytes = 20'000'000;
  uint64_t seed = 1;                          // of the built-in corpus
  std::function<bool()> stop_requested = {};  // asked again and again; true: give up, leave nothing
  text::ListOptions reading = {};  // of `inputs`; in valid_inputs no name tells of another split
  std::string field = "text";      // the text's name in JSON lines and Parquet
  tokenizer::Framing framing = tokenizer::Framing::kFramed;
};

// Where the validation split came from.
enum class ValidationOrigin { kNone, kGiven, kNamed, kDocuments, kTail };

struct PrepareResult {
  DatasetIndex index;
  ValidationOrigin validation = ValidationOrigin::kNone;
  // By split. That of the tail of another split is not counted, nor are those of "builtin".
  std::map<std::string, uint64_t> input_files = {};  // files with documents in it
  std::map<std::string, uint64_t> named_files = {};  // files that were sent there by their names
  std::vector<text::SkippedFile> skipped = {};
  uint64_t empty_documents = 0;
};

// Text -> token shards in the folder `out`, which appears when everything is in it. Memory does not
// grow with the text, and the files do not depend on the number of threads.
// A document of a file whose name tells of valid or test (text/split_names.h) goes there. Where no
// validation text is given or named so, another goes to validation if its document_key(), as a
// fraction of 2^64, is below valid_fraction; if none does (the input has few documents), the last
// part of what is left goes there.
// Throws UserError.
PrepareResult prepare(const PrepareRequest& request);

}  // namespace ballast::tokens
