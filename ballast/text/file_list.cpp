// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/file_list.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/input_stream.h"
#include "ballast/text/byte_source.h"
#include "ballast/text/domain_names.h"
#include "ballast/text/not_text.h"
#include "ballast/text/split_names.h"

namespace ballast::text {
namespace {

namespace fs = std::filesystem;

// One input as the user gave it.
struct Input {
  std::string name;  // empty: not given
  fs::path path;
};

Input parse_input(const fs::path& given) {
  std::error_code ignored;
  const std::string text = given.string();
  const size_t equals = text.find('=');
  const bool is_named = equals != text.npos && equals > 0 && text.find('/') > equals;
  if (!is_named || fs::exists(given, ignored)) return {"", given};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::string read_head(const fs::path& path) {
  std::string head(kHeadBytes, '\0');
  head.resize(open_byte_source(path)->read(head));
  return head;
}

// What a file is: how it is read, or why it is not.
struct Verdict {
  TextFormat format = TextFormat::kPlain;
  std::string reason;  // empty: it is read
};

// As it lies there: a compressed one cannot be read. A file of that name must be one.
bool is_parquet(const fs::path& path) {
  std::string start(4, '\0');
  start.resize(InputStream(path).read(start));
  if (start != "PAR1" && path.extension() == ".parquet") {
    fail("{} is named .parquet, but does not start like Parquet; copy it again or rename it",
         path.string());
  }
  return start == "PAR1";
}

// REQUIRES: a regular file.
Verdict judge(const fs::path& path, TextFormat asked) {
  const std::string head = read_head(path);
  if (head.empty()) return {asked, "empty"};
  const std::string extension = without_compression(path).extension().string();
  const bool by_name = asked == TextFormat::kByName;
  if (asked == TextFormat::kParquet || (by_name && is_parquet(path)))
    return {TextFormat::kParquet, ""};
  std::string reason = reason_not_text(head);
  const bool is_lines = asked == TextFormat::kJsonLines ||
                        (by_name && (extension == ".jsonl" || extension == ".ndjson"));
  return {is_lines ? TextFormat::kJsonLines : TextFormat::kPlain, std::move(reason)};
}

// What is below a folder: files to judge, sorted, and what is passed over unseen.
struct Below {
  std::vector<fs::path> files;
  std::vector<SkippedFile> skipped;
};

Below look_below(const fs::path& folder) {
  Below below;
  try {
    for (auto it = fs::recursive_directory_iterator(folder); it != fs::end(it); ++it) {
      const fs::path& path = it->path();
      std::error_code ignored;
      if (path.filename().string().starts_with('.')) {
        it.disable_recursion_pending();
        below.skipped.push_back({path, "hidden (its name starts with a dot)"});
      } else if (it->is_regular_file(ignored)) {
        below.files.push_back(path);
      } else if (it->is_symlink(ignored)) {
        const bool leads = fs::exists(path, ignored);
        below.skipped.push_back({path, leads ? "a link to a folder" : "a link that leads nowhere"});
      } else if (!it->is_directory(ignored)) {
        below.skipped.push_back({path, "no file"});
      }
    }
  } catch (const fs::filesystem_error& error) {
    fail("cannot read the directory {}: {}", error.path1().string(), error.code().message());
  }
  std::sort(below.files.begin(), below.files.end());
  return below;
}

class Lister {
 public:
  Lister(const ListOptions& options, size_t num_inputs)
      : options_(options), num_inputs_(num_inputs) {}

  void add(const Input& input) {
    list_.inputs.push_back(input.path);
    names_.push_back(input.name);
    std::error_code error;
    const fs::file_status status = fs::status(input.path, error);
    if (input.path == "-") {
      add_unseen(input.path);
    } else if (!fs::exists(status)) {
      fail("cannot find {}: {}", input.path.string(),
           error ? error.message() : std::string("no such file or directory"));
    } else if (fs::is_directory(status)) {
      add_folder(input.path);
    } else if (fs::is_regular_file(status)) {
      add_file(input.path);
    } else {
      add_unseen(input.path);
    }
  }

  FileList finish() {
    set_splits();
    for (size_t i = 0; i < list_.files.size(); ++i) list_.files[i].domain = domain_of(i);
    std::ranges::sort(list_.skipped, {}, &SkippedFile::path);
    return std::move(list_);
  }

 private:
  void add_file(const fs::path& path) {
    Verdict verdict = judge(path, options_.format);
    if (verdict.reason == "empty") fail("{} is empty", path.string());
    if (!verdict.reason.empty()) {
      fail("{} is not text: it is {}; {}", path.string(), verdict.reason,
           cure_for_not_text(verdict.reason));
    }
    take(path, verdict.format, fs::path());
  }

  // A pipe can be read once only: no look ahead.
  void add_unseen(const fs::path& path) {
    if (options_.format == TextFormat::kParquet)
      fail("{} is not a file: Parquet cannot be read from it",
           path == "-" ? "standard input (-)" : path.string());
    const bool is_lines = options_.format == TextFormat::kJsonLines;
    take(path, is_lines ? TextFormat::kJsonLines : TextFormat::kPlain, fs::path());
  }

  void add_folder(const fs::path& folder) {
    Below below = look_below(folder);
    const size_t before = list_.files.size();
    for (const fs::path& file : below.files) {
      Verdict verdict = judge(file, options_.format);
      if (verdict.reason.empty()) {
        take(file, verdict.format, file.lexically_relative(folder));
      } else {
        below.skipped.push_back({file, std::move(verdict.reason)});
      }
    }
    if (list_.files.size() == before) {
      std::string example;
      if (!below.skipped.empty()) {
        example = fmt::format(" ({} skipped; {} is {})", below.skipped.size(),
                              below.skipped.front().path.string(), below.skipped.front().reason);
      }
      fail("no text in the directory {}: it holds no file that is not hidden, empty or binary{}",
           folder.string(), example);
    }
    std::ranges::move(below.skipped, std::back_inserter(list_.skipped));
  }

  void take(const fs::path& path, TextFormat format, fs::path below_folder) {
    list_.files.push_back({.path = path, .format = format, .input = list_.inputs.size() - 1});
    below_.push_back(std::move(below_folder));
  }

  void set_splits() {
    if (options_.split_names == SplitNames::kIgnored) return;
    for (size_t i = 0; i < list_.files.size(); ++i) {
      const fs::path own = own_name(list_.inputs[list_.files[i].input]);
      list_.files[i].split = split_of_path(own / below_[i]);
    }
    const auto is_for_training = [](const TextFile& file) {
      return file.split == Split::kUnsaid || file.split == Split::kTrain;
    };
    if (std::ranges::any_of(list_.files, is_for_training)) return;
    for (TextFile& file : list_.files) file.split = Split::kUnsaid;
  }

  uint32_t domain_of(size_t i) {
    const TextFile& file = list_.files[i];
    const DomainNames names(file.split == Split::kUnsaid ? SplitNames::kIgnored
                                                         : SplitNames::kObeyed);
    const std::string& given = names_[file.input];
    const fs::path& input = list_.inputs[file.input];
    std::string name = given.empty() ? names.of_input(input) : given;
    if (options_.domains != DomainsBy::kInput) {
      const std::string part = options_.domains == DomainsBy::kFile
                                   ? names.of_file(below_[i])
                                   : names.of_folder(input, below_[i]);
      const bool is_alone = given.empty() && (num_inputs_ == 1 || below_[i].empty());
      if (!part.empty()) name = is_alone ? part : name + "/" + part;
    }
    return index_of(name);
  }

  uint32_t index_of(const std::string& name) {
    const auto found = std::ranges::find(list_.domains, name);
    const auto index = static_cast<uint32_t>(found - list_.domains.begin());
    if (found == list_.domains.end()) list_.domains.push_back(name);
    return index;
  }

  ListOptions options_;
  size_t num_inputs_;
  FileList list_;
  std::vector<std::string> names_;  // of the inputs, where given
  std::vector<fs::path> below_;     // the files' paths from their folder on; empty: given itself
};

}  // namespace

bool FileList::has(Split split) const {
  return std::ranges::find(files, split, &TextFile::split) != files.end();
}

FileList list_text_files(const std::vector<fs::path>& inputs, const ListOptions& options) {
  if (inputs.empty()) fail("no text given: name files, directories, or - for standard input");
  if (std::ranges::count_if(
          inputs, [](const fs::path& input) { return parse_input(input).path == "-"; }) > 1) {
    fail("standard input (-) is given twice: it can be read once only");
  }
  Lister lister(options, inputs.size());
  for (const fs::path& input : inputs) lister.add(parse_input(input));
  return lister.finish();
}

}  // namespace ballast::text
