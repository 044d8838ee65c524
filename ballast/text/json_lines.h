// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "ballast/text/byte_source.h"
#include "ballast/text/document_source.h"

namespace ballast::text {

// A line longer than this is refused: it must be in memory to be read.
inline constexpr size_t kLongestJsonLine = 128 << 20;

// The objects of a file with one JSON object a line. Blank lines are passed over. Of a key that is
// there twice the last counts. Throws UserError with the file's name and the line's number.
class JsonObjects {
 public:
  JsonObjects(std::unique_ptr<ByteSource> source, std::string name);

  bool next(nlohmann::json& object);  // false after the last
  // Of the last object: why it cannot be taken, as "FILE, line N: why".
  [[noreturn]] void refuse(std::string_view why) const;
  // Of the last object, a string. Throws UserError as above where there is none.
  std::string take_string(nlohmann::json& object, const std::string& field) const;
  uint64_t bytes_consumed() const { return source_->bytes_consumed(); }

 private:
  bool next_line(std::string_view& line);  // without its end; valid until the next call
  void refill();

  std::unique_ptr<ByteSource> source_;
  std::string name_;
  std::string buffer_;
  size_t begin_ = 0;     // what is before was handed out
  uint64_t number_ = 0;  // of the last line, from 1
  bool ended_ = false;
};

// Each object is a document, the string `field` of it. Documents without any text are passed over
// and counted.
std::unique_ptr<DocumentSource> read_json_lines(std::unique_ptr<ByteSource> source,
                                                std::string name, std::string field);

}  // namespace ballast::text
