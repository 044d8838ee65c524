// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "ballast/text/text_reader.h"

namespace ballast::text {

// Reads documents from text files, one input after another. An input is
//   FILE        read as it is, whatever its bytes; decompressed where it is zstd
//   DIRECTORY   all text files below it, sorted by path. Skipped are names that start with a dot,
//               empty files, compressed or other well-known binary formats but zstd, and files
//               with a NUL byte in their first 4096 bytes (decompressed). Links to files are
//               followed, links to directories below it are not.
//   -           standard input
//   NAME=INPUT  any of these, as domain NAME
// How files are cut into documents and pieces: document_splitter.h. No document spans two files.
// An input's domain is NAME, or its file name without ".zst" and then without its last extension
// ("wiki.train.txt.zst": "wiki.train"), "stdin" for "-". Inputs of the same name share a domain.
// Throws UserError if there is no input, or an input is missing, unreadable, damaged, in a
// compressed format other than zstd, or has no text; whatever can be seen at once is thrown here,
// the rest by next(). The order of documents depends on the inputs alone.
std::unique_ptr<TextReader> read_text_files(const std::vector<std::filesystem::path>& inputs);

}  // namespace ballast::text
