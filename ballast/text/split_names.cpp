// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/split_names.h"

#include <algorithm>
#include <stdexcept>

namespace ballast::text {
namespace {

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

Split split_of_word(std::string_view word) {
  std::string lower(word);
  for (char& c : lower) c = static_cast<char>(c | 0x20);  // letters only
  if (lower == "train") return Split::kTrain;
  if (lower == "val" || lower == "valid" || lower == "validation") return Split::kValid;
  return lower == "test" ? Split::kTest : Split::kUnsaid;
}

// Calls take(begin, end) for each word.
template <typename Take>
void for_words(std::string_view name, Take take) {
  for (size_t begin = 0, end = 0; (begin = name.find_first_of(kLetters, end)) != name.npos;) {
    end = std::min(name.find_first_not_of(kLetters, begin), name.size());
    take(begin, end);
  }
}

}  // namespace

std::set<Split> splits_named(std::string_view name) {
  std::set<Split> splits;
  for_words(name, [&](size_t begin, size_t end) {
    const Split split = split_of_word(name.substr(begin, end - begin));
    if (split != Split::kUnsaid) splits.insert(split);
  });
  return splits;
}

Split split_of_path(const std::filesystem::path& path) {
  Split split = Split::kUnsaid;
  for (const auto& part : path) {
    const std::set<Split> named = splits_named(part.string());
    if (named.size() == 1) split = *named.begin();
  }
  return split;
}

std::string without_split_words(std::string_view name) {
  std::string rest;
  size_t copied = 0;
  for_words(name, [&](size_t begin, size_t end) {
    if (split_of_word(name.substr(begin, end - begin)) == Split::kUnsaid) return;
    rest += name.substr(copied, begin - copied);
    copied = end;
    if (!rest.empty())
      rest.pop_back();  // what stands before the word, or else what follows it
    else if (copied < name.size())
      ++copied;
  });
  return rest.append(name.substr(copied));
}

std::string_view name_of(Split split) {
  switch (split) {
    case Split::kUnsaid:
      return "";
    case Split::kTrain:
      return "train";
    case Split::kValid:
      return "valid";
    case Split::kTest:
      return "test";
  }
  throw std::invalid_argument("name_of: not a Split");
}

}  // namespace ballast::text
