// SPDX-License-Identifier: Apache-2.0
#include "cli/command_words.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace ballast::cli {

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  words.front() = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

void remove_option(std::vector<std::string>& words, const std::string& name, Takes takes) {
  for (size_t i = 0; i < words.size() && words[i] != "--";) {
    const auto at = words.begin() + static_cast<long>(i);
    if (words[i] == name) {
      words.erase(at, std::min(at + (takes == Takes::kValue ? 2 : 1), words.end()));
    } else if (words[i].starts_with(name + "=")) {
      words.erase(at);
    } else {
      ++i;
    }
  }
}

}  // namespace ballast::cli
