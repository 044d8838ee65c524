// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "ballast/system/file.h"
#include "ballast/system/random.h"
#include "ballast/text/text_reader.h"
#include "ballast/tokens/token_source.h"

namespace ballast::test {

inline void write_bytes(const fs::path& path, std::string_view bytes) {
  fs::remove(path);  // some file systems wait for the disk when a file is truncated
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<long>(bytes.size()));
}

template <typename T>
std::string as_bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline std::vector<int64_t> all_tokens(const tokens::TokenSource& source) {
  std::vector<int64_t> ids(source.size());
  source.read(0, ids);
  return ids;
}

// Words of one to eight letters, a line every ten or so; differs by `number`.
inline std::string sample_document(uint64_t number, size_t bytes) {
  RandomStream random(17, "sample document", number);
  std::string text;
  while (text.size() < bytes) {
    for (uint64_t i = random.below(8); i < 8; ++i)
      text += static_cast<char>('a' + random.below(26));
    text += random.below(10) == 0 ? '\n' : ' ';
  }
  text.resize(bytes);
  return text;
}

// A TextReader over documents that are given as lists of pieces.
class DocumentsInMemory : public text::TextReader {
 public:
  explicit DocumentsInMemory(std::vector<std::vector<std::string>> documents) {
    for (auto& pieces : documents) {
      for (size_t i = 0; i < pieces.size(); ++i) {
        pieces_.push_back({.text = std::move(pieces[i]), .ends_document = i + 1 == pieces.size()});
        total_ += pieces_.back().text.size();
      }
    }
  }
  bool next(text::TextPiece& piece) override {
    if (at_ == pieces_.size()) return false;
    piece = pieces_[at_++];
    read_ += piece.text.size();
    return true;
  }
  const std::vector<std::string>& domains() const override { return domains_; }
  uint64_t total_bytes() const override { return total_; }
  uint64_t bytes_read() const override { return read_; }

 private:
  std::vector<text::TextPiece> pieces_;
  size_t at_ = 0;
  uint64_t total_ = 0, read_ = 0;
  std::vector<std::string> domains_{"memory"};
};

}  // namespace ballast::test
