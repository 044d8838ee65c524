// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/domain_names.h"

#include <regex>
#include <system_error>
#include <utility>

#include "ballast/text/split_names.h"

namespace ballast::text {
namespace {

namespace fs = std::filesystem;

// Of a file's name, less its extensions: ".secret.txt" is "secret".
std::string stem_of(const fs::path& file) {
  std::string name = without_compression(file.filename()).stem().string();
  return name.erase(0, name.find_first_not_of('.'));
}

}  // namespace

fs::path without_compression(fs::path path) {
  const bool is_compressed = path.extension() == ".gz" || path.extension() == ".zst";
  return is_compressed ? path.replace_extension() : path;
}

std::string own_name(const fs::path& path) {
  if (path == "-") return "";
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return path.filename().string();
  return fs::weakly_canonical(path, ignored).filename().string();
}

std::string DomainNames::bare(std::string name) const {
  static const std::regex shard_number("[-_.]?[0-9]+-of-[0-9]+");
  name = std::regex_replace(name, shard_number, "");
  return split_names_ == SplitNames::kObeyed ? without_split_words(name) : name;
}

std::string DomainNames::of_place(fs::path folder) const {
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    const std::string name = bare(folder.filename().string());
    if (!name.empty()) return name;
  }
  return "text";
}

std::string DomainNames::of_input(const fs::path& input) const {
  if (input == "-") return "stdin";
  std::error_code ignored;
  const fs::path place = fs::weakly_canonical(input, ignored);
  if (fs::is_directory(input, ignored)) return of_place(place);
  const std::string stem = stem_of(input), name = bare(stem);
  if (!name.empty()) return name;
  return stem.empty() ? "text" : of_place(place.parent_path());
}

std::string DomainNames::of_file(const fs::path& below) const {
  fs::path name;
  for (const fs::path& folder : below.parent_path()) {
    const std::string part = bare(folder.string());
    if (!part.empty()) name /= part;
  }
  const std::string stem = bare(stem_of(below));
  if (!stem.empty()) name /= stem;
  return name.string();
}

std::string DomainNames::of_folder(const fs::path& input, const fs::path& below) const {
  std::error_code ignored;
  if (input == "-") return "";
  if (below.empty()) return of_place(fs::weakly_canonical(input, ignored).parent_path());
  for (const fs::path& folder : below.parent_path()) {
    std::string name = bare(folder.string());
    if (!name.empty()) return name;
  }
  return "";
}

}  // namespace ballast::text
