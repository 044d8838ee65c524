// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/json_lines.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "ballast/system/error.h"
#include "ballast/system/json.h"
#include "ballast/text/piece_cut.h"

namespace ballast::text {
namespace {

constexpr size_t kReadBytes = 1 << 18;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string keys_of(const nlohmann::json& object) {
  std::string keys;
  for (const auto& [key, value] : object.items()) {
    if (keys.size() > 200) return keys + ", ...";
    keys += keys.empty() ? key : ", " + key;
  }
  return keys.empty() ? "none" : keys;
}

std::string kind_of(const nlohmann::json& value) {
  if (value.is_null()) return "null";
  const std::string type = value.type_name();
  return (type == "array" || type == "object" ? "an " : "a ") + type;
}

class JsonLines : public DocumentSource {
 public:
  JsonLines(std::unique_ptr<ByteSource> source, std::string name, std::string field)
      : objects_(std::move(source), std::move(name)), field_(std::move(field)) {}

  bool next(TextPiece& piece) override {
    while (pieces_.is_done()) {
      nlohmann::json object;
      if (!objects_.next(object)) return false;
      std::string document = objects_.take_string(object, field_);
      if (document.empty()) ++empty_documents_;
      pieces_.start(std::move(document));
    }
    pieces_.next(piece);
    return true;
  }

  uint64_t bytes_consumed() const override { return objects_.bytes_consumed(); }
  uint64_t empty_documents() const override { return empty_documents_; }

 private:
  JsonObjects objects_;
  std::string field_;
  DocumentPieces pieces_;
  uint64_t empty_documents_ = 0;
};

}  // namespace

JsonObjects::JsonObjects(std::unique_ptr<ByteSource> source, std::string name)
    : source_(std::move(source)), name_(std::move(name)) {}

bool JsonObjects::next(nlohmann::json& object) {
  for (std::string_view line; next_line(line);) {
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    try {
      object = parse_json(line, RepeatedKeys::kLastCounts);
    } catch (const BadJson& error) {
      refuse(fmt::format("{}; each line must be one JSON object", error.what()));
    }
    if (!object.is_object())
      refuse(fmt::format("it holds {}; each line must be one JSON object", kind_of(object)));
    return true;
  }
  return false;
}

std::string JsonObjects::take_string(nlohmann::json& object, const std::string& field) const {
  const auto found = object.find(field);
  if (found == object.end()) {
    refuse(
        fmt::format("it has no field '{}'; its fields are: {}. Name the one with the text by "
                    "--field",
                    field, keys_of(object)));
  }
  if (!found->is_string())
    refuse(fmt::format("its field '{}' is {}, and must be a string", field, kind_of(*found)));
  return std::move(found->get_ref<std::string&>());
}

void JsonObjects::refuse(std::string_view why) const {
  fail("{}, line {}: {}", name_, number_, why);
}

bool JsonObjects::next_line(std::string_view& line) {
  size_t searched = begin_;
  for (;;) {
    const size_t end = buffer_.find('\n', searched);
    if (end != buffer_.npos || ended_) {
      if (end == buffer_.npos && begin_ == buffer_.size()) return false;
      line = std::string_view(buffer_).substr(begin_, end == buffer_.npos ? end : end - begin_);
      begin_ = end == buffer_.npos ? buffer_.size() : end + 1;
      ++number_;
      if (number_ == 1 && line.starts_with(kByteOrderMark))
        line.remove_prefix(kByteOrderMark.size());
      return true;
    }
    searched = buffer_.size() - begin_;
    refill();
  }
}

void JsonObjects::refill() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  if (buffer_.size() > kLongestJsonLine) {
    fail("{}, line {}: it is longer than {} MiB; cut the document into several", name_, number_ + 1,
         kLongestJsonLine >> 20);
  }
  const size_t old_size = buffer_.size();
  buffer_.resize(old_size + kReadBytes);
  const size_t filled = source_->read({buffer_.data() + old_size, kReadBytes});
  buffer_.resize(old_size + filled);
  ended_ = filled < kReadBytes;
}

std::unique_ptr<DocumentSource> read_json_lines(std::unique_ptr<ByteSource> source,
                                                std::string name, std::string field) {
  return std::make_unique<JsonLines>(std::move(source), std::move(name), std::move(field));
}

}  // namespace ballast::text
