// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/text_files.h"

#include <algorithm>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/log.h"
#include "ballast/text/byte_source.h"
#include "ballast/text/document_splitter.h"

namespace ballast::text {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHeadBytes = 4096;

// One input as the user gave it.
struct Input {
  std::string name;
  fs::path path;
};

struct File {
  fs::path path;
  size_t input;
};

std::string name_of(fs::path path) {
  if (path == "-") return "stdin";
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    path = fs::weakly_canonical(path, ignored);  // ".", "..", "x/"
    return path.has_filename() ? path.filename().string() : "text";
  }
  path = path.filename();
  if (path.extension() == ".zst") path = path.stem();
  std::string name = path.stem().string();
  name.erase(0, name.find_first_not_of('.'));
  return name.empty() ? "text" : name;
}

Input parse_input(const fs::path& given) {
  std::error_code ignored;
  const std::string text = given.string();
  const size_t equals = text.find('=');
  const bool is_named = equals != text.npos && equals > 0 && text.find('/') > equals;
  if (!is_named || fs::exists(given, ignored)) return {name_of(given), given};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::string read_head(const fs::path& path) {
  std::string head(kHeadBytes, '\0');
  head.resize(open_byte_source(path)->read(head));
  return head;
}

std::vector<fs::path> text_files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  try {
    for (auto it = fs::recursive_directory_iterator(folder); it != fs::end(it); ++it) {
      const bool hidden = it->path().filename().string().starts_with('.');
      if (hidden) it.disable_recursion_pending();
      if (!hidden && it->is_regular_file()) files.push_back(it->path());
    }
  } catch (const fs::filesystem_error& error) {
    fail("cannot read the directory {}: {}", error.path1().string(), error.code().message());
  }
  std::erase_if(files, [](const fs::path& file) {
    const std::string head = read_head(file);
    return head.empty() || !reason_not_text(head).empty();
  });
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    fail("no text in the directory {}: it holds no file that is not hidden, empty or binary",
         folder.string());
  }
  return files;
}

// A file named by the user: refused only if reading it as text cannot be meant.
void check_file(const fs::path& path) {
  const std::string head = read_head(path);
  if (head.empty()) fail("{} is empty", path.string());
  const std::string_view reason = reason_not_text(head);
  if (reason == "NUL bytes") {
    log_warning("{} has NUL bytes: is it text? It is read as it is", path.string());
  } else if (!reason.empty()) {
    fail("{} is not text, but {}: extract it, compress it with zstd, or pipe its text in as `-`",
         path.string(), reason);
  }
}

class TextFiles : public TextReader {
 public:
  explicit TextFiles(const std::vector<fs::path>& inputs) {
    if (inputs.empty()) fail("no text given: name files, directories, or - for standard input");
    for (const auto& given : inputs) add(parse_input(given));
    const auto is_stdin = [](const File& file) { return file.path == "-"; };
    if (std::count_if(files_.begin(), files_.end(), is_stdin) > 1) {
      fail("standard input (-) is given twice: it can be read once only");
    }
  }

  bool next(TextPiece& piece) override {
    while (splitter_ || next_file_ < files_.size()) {
      if (!splitter_) {
        source_ = open_byte_source(files_[next_file_].path);
        splitter_.emplace(*source_);
      }
      const size_t input = files_[next_file_].input;
      if (splitter_->next(piece)) {
        piece.domain = input_domains_[input];
        piece.nats = std::numeric_limits<double>::quiet_NaN();
        input_has_text_ = true;
        return true;
      }
      close_file(input);
    }
    return false;
  }

  const std::vector<std::string>& domains() const override { return domains_; }
  uint64_t total_bytes() const override { return total_known_ ? total_bytes_ : 0; }
  uint64_t bytes_read() const override {
    return bytes_done_ + (source_ ? source_->bytes_consumed() : 0);
  }

 private:
  void add(Input input) {
    const auto domain = std::find(domains_.begin(), domains_.end(), input.name);
    input_domains_.push_back(static_cast<uint32_t>(domain - domains_.begin()));
    if (domain == domains_.end()) domains_.push_back(input.name);

    std::error_code error;
    const fs::file_status status = fs::status(input.path, error);
    if (input.path == "-") {
      total_known_ = false;
    } else if (!fs::exists(status)) {
      fail("cannot find {}: {}", input.path.string(),
           error ? error.message() : std::string("no such file or directory"));
    } else if (fs::is_directory(status)) {
      for (auto& file : text_files_below(input.path)) add_file(std::move(file));
      inputs_.push_back(std::move(input));
      return;
    } else if (fs::is_regular_file(status)) {
      check_file(input.path);
    }  // a pipe can be read once only: no look ahead
    add_file(input.path);
    inputs_.push_back(std::move(input));
  }

  void add_file(fs::path path) {
    std::error_code error;
    const bool is_regular = fs::is_regular_file(path, error);
    if (is_regular) total_bytes_ += fs::file_size(path, error);
    total_known_ = total_known_ && is_regular;
    files_.push_back({std::move(path), inputs_.size()});
  }

  void close_file(size_t input) {
    bytes_done_ += source_->bytes_consumed();
    splitter_.reset();
    source_.reset();
    ++next_file_;
    const bool last_of_input = next_file_ == files_.size() || files_[next_file_].input != input;
    if (!last_of_input) return;
    if (!input_has_text_) {
      const std::string name = inputs_[input].path.string();
      fail("no text in {}: it is empty, or has nothing but separators",
           name == "-" ? "standard input" : name);
    }
    input_has_text_ = false;
  }

  std::vector<Input> inputs_;
  std::vector<File> files_;
  std::vector<std::string> domains_;
  std::vector<uint32_t> input_domains_;
  uint64_t total_bytes_ = 0, bytes_done_ = 0;
  bool total_known_ = true;

  size_t next_file_ = 0;  // the one being read, if there is a splitter
  std::unique_ptr<ByteSource> source_;
  std::optional<DocumentSplitter> splitter_;
  bool input_has_text_ = false;
};

}  // namespace

std::unique_ptr<TextReader> read_text_files(const std::vector<fs::path>& inputs) {
  return std::make_unique<TextFiles>(inputs);
}

}  // namespace ballast::text
