// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ballast/text/text_reader.h"
#include "ballast/tokenizer/tokenizer.h"

namespace ballast::tokens {

// The path in an input of the form PATH or NAME=PATH, as list_text_files takes them.
std::filesystem::path path_of_input(const std::string& input);

// Copies standard input, where it is one of `inputs`, into a file `spool` and names that instead,
// so that the inputs can be read twice. Calls `check` between blocks: what it throws ends this.
std::vector<std::string> spool_standard_input(std::vector<std::string> inputs,
                                              const std::filesystem::path& spool,
                                              const std::function<void()>& check);

struct BpeSample {
  tokenizer::TokenId vocabulary_size = 0;
  uint64_t bytes = 0;         // at most this much text, spread evenly over the input
  double valid_fraction = 0;  // documents that go to validation or test are left out
  size_t threads = 0;
};
std::unique_ptr<tokenizer::Tokenizer> train_tokenizer(text::TextReader& reader,
                                                      const BpeSample& sample);

// Whether a document goes to validation, by its document_key().
bool is_validation_document(uint64_t document_key, double valid_fraction);

}  // namespace ballast::tokens
