// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "ballast/text/file_list.h"
#include "ballast/text/text_reader.h"

namespace ballast::text {

// Reads the documents of all files of the list, one file after another. `field` names the text in
// JSON lines and Parquet. How files are cut into documents: see TextFormat. No document spans two
// files. The order of documents depends on the list alone.
// Throws UserError where a file is unreadable or damaged, or an input has no text at all.
std::unique_ptr<TextReader> read_text_files(FileList list, std::string field = "text");

}  // namespace ballast::text
