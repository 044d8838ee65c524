// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "ballast/text/text_reader.h"

namespace ballast::text {

// The splits that the name of a file or folder speaks of. A word of it is a run of letters:
//   train      train
//   valid      val, valid, validation
//   test       test
// in lower or upper case. "wiki.train.txt" is of train, "latest.txt" of none.
std::set<Split> splits_named(std::string_view name);

// The split of a file by its path: its own name tells, or else the folder's that is nearest to it.
// A name that speaks of several tells nothing.
Split split_of_path(const std::filesystem::path& path);

// The name without the words that speak of a split, and without what separated them.
std::string without_split_words(std::string_view name);

// "train", "valid", "test"; empty for kUnsaid.
std::string_view name_of(Split split);

}  // namespace ballast::text
