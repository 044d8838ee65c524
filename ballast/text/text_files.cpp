// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/text_files.h"

#include <stdexcept>
#include <system_error>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/text/byte_source.h"
#include "ballast/text/document_splitter.h"
#include "ballast/text/json_lines.h"
#include "ballast/text/parquet_plugin.h"

namespace ballast::text {
namespace {

namespace fs = std::filesystem;

std::string shown(const fs::path& path) { return path == "-" ? "standard input" : path.string(); }

class PlainDocuments : public DocumentSource {
 public:
  explicit PlainDocuments(std::unique_ptr<ByteSource> source)
      : source_(std::move(source)), splitter_(*source_) {}
  bool next(TextPiece& piece) override { return splitter_.next(piece); }
  uint64_t bytes_consumed() const override { return source_->bytes_consumed(); }

 private:
  std::unique_ptr<ByteSource> source_;
  DocumentSplitter splitter_;
};

std::unique_ptr<DocumentSource> open_documents(const TextFile& file, const std::string& field) {
  switch (file.format) {
    case TextFormat::kByName:
      break;
    case TextFormat::kPlain:
      return std::make_unique<PlainDocuments>(open_byte_source(file.path));
    case TextFormat::kJsonLines:
      return read_json_lines(open_byte_source(file.path), shown(file.path), field);
    case TextFormat::kParquet:
      return read_parquet(file.path, field);
  }
  throw std::invalid_argument("open_documents: a file without a format");
}

class TextFiles : public TextReader {
 public:
  TextFiles(FileList list, std::string field) : list_(std::move(list)), field_(std::move(field)) {
    for (const TextFile& file : list_.files) {
      std::error_code error;
      const bool is_regular = file.path != "-" && fs::is_regular_file(file.path, error);
      if (is_regular) total_bytes_ += fs::file_size(file.path, error);
      total_known_ = total_known_ && is_regular;
    }
  }

  bool next(TextPiece& piece) override {
    while (next_file_ < list_.files.size()) {
      const TextFile& file = list_.files[next_file_];
      if (!documents_) documents_ = open_documents(file, field_);
      if (documents_->next(piece)) {
        piece.domain = file.domain;
        piece.nats = std::numeric_limits<double>::quiet_NaN();
        piece.split = file.split;
        piece.file = static_cast<uint32_t>(next_file_);
        input_has_text_ = true;
        return true;
      }
      close_file(file.input);
    }
    return false;
  }

  const std::vector<std::string>& domains() const override { return list_.domains; }
  uint64_t total_bytes() const override { return total_known_ ? total_bytes_ : 0; }
  uint64_t bytes_read() const override {
    return bytes_done_ + (documents_ ? documents_->bytes_consumed() : 0);
  }
  uint64_t empty_documents() const override {
    return empty_done_ + (documents_ ? documents_->empty_documents() : 0);
  }

 private:
  void close_file(size_t input) {
    bytes_done_ += documents_->bytes_consumed();
    empty_done_ += documents_->empty_documents();
    documents_.reset();
    ++next_file_;
    const bool last_of_input =
        next_file_ == list_.files.size() || list_.files[next_file_].input != input;
    if (!last_of_input) return;
    if (!input_has_text_) {
      fail("no text in {}: it is empty, or has nothing but separators and empty documents",
           shown(list_.inputs[input]));
    }
    input_has_text_ = false;
  }

  FileList list_;
  std::string field_;
  uint64_t total_bytes_ = 0, bytes_done_ = 0, empty_done_ = 0;
  bool total_known_ = true;

  size_t next_file_ = 0;  // the one being read, if there are documents
  std::unique_ptr<DocumentSource> documents_;
  bool input_has_text_ = false;
};

}  // namespace

std::unique_ptr<TextReader> read_text_files(FileList list, std::string field) {
  return std::make_unique<TextFiles>(std::move(list), std::move(field));
}

}  // namespace ballast::text
