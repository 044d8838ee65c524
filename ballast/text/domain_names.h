// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "ballast/text/file_list.h"

namespace ballast::text {

// The path without ".gz" or ".zst" at its end.
std::filesystem::path without_compression(std::filesystem::path path);
// The name of a file or folder itself: "." and "x/" have one too. Empty for "-".
std::string own_name(const std::filesystem::path& path);

// How domains are named by files and folders: the rules are those of list_text_files.
class DomainNames {
 public:
  explicit DomainNames(SplitNames split_names) : split_names_(split_names) {}

  std::string of_input(const std::filesystem::path& input) const;
  // By its path below a folder; empty where that says nothing.
  std::string of_file(const std::filesystem::path& below) const;
  // By the folder right below `input` in which it is, or, of a file that was given (`below` is
  // empty), by the folder in which that is. Empty where there is none.
  std::string of_folder(const std::filesystem::path& input,
                        const std::filesystem::path& below) const;

 private:
  std::string bare(std::string name) const;  // without shard numbers and words of splits
  // Of the folders from `folder` outwards, the first with a name left.
  std::string of_place(std::filesystem::path folder) const;

  SplitNames split_names_;
};

}  // namespace ballast::text
