// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/byte_source.h"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/system/input_stream.h"

namespace ballast::text {
namespace {

using std::filesystem::path;
using namespace std::string_view_literals;

constexpr size_t kInputBlock = 128 << 10;  // what ZSTD_DStreamInSize() recommends, about

// An input whose first bytes can be looked at before they are read.
class RawBytes {
 public:
  explicit RawBytes(const path& name) : stream_(name) {}

  const std::string& name() const { return stream_.name(); }
  uint64_t offset() const { return offset_; }
  bool is_named_file() const { return stream_.is_named_file(); }

  std::string_view peek(size_t size) {
    head_.resize(size);
    head_.resize(stream_.read(head_));
    return head_;
  }

  size_t read(std::span<char> buffer) {
    const size_t from_head = std::min(buffer.size(), head_.size());
    std::copy_n(head_.begin(), from_head, buffer.begin());
    head_.erase(0, from_head);
    const size_t size = from_head + stream_.read(buffer.subspan(from_head));
    offset_ += size;
    return size;
  }

 private:
  InputStream stream_;
  uint64_t offset_ = 0;
  std::string head_;
};

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(std::unique_ptr<RawBytes> file) : file_(std::move(file)) {}
  size_t read(std::span<char> buffer) override { return file_->read(buffer); }
  uint64_t bytes_consumed() const override { return file_->offset(); }

 private:
  std::unique_ptr<RawBytes> file_;
};

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(std::unique_ptr<RawBytes> file)
      : file_(std::move(file)), context_(ZSTD_createDCtx()), block_(kInputBlock) {
    if (!context_) throw std::bad_alloc();
  }

  size_t read(std::span<char> buffer) override {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    while (out.pos < out.size) {
      if (in_.pos == in_.size) in_ = {block_.data(), file_->read(block_), 0};
      const bool exhausted = in_.size == 0;
      if (exhausted && frame_rest_ == 0) break;
      const size_t before = out.pos;
      frame_rest_ = ZSTD_decompressStream(context_.get(), &out, &in_);
      if (ZSTD_isError(frame_rest_)) {
        fail("{}: damaged zstd data near byte {} of the file: {}; check it with `zstd -t`",
             file_->name(), bytes_consumed(), ZSTD_getErrorName(frame_rest_));
      }
      if (exhausted && out.pos == before && frame_rest_ != 0) {
        fail(
            "{}: the zstd data is cut off: the file ends after {} bytes within a frame; copy it "
            "again",
            file_->name(), bytes_consumed());
      }
    }
    return out.pos;
  }

  uint64_t bytes_consumed() const override { return file_->offset() - (in_.size - in_.pos); }

 private:
  struct FreeContext {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };

  std::unique_ptr<RawBytes> file_;
  std::unique_ptr<ZSTD_DCtx, FreeContext> context_;
  std::vector<char> block_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  size_t frame_rest_ = 0;  // 0: between frames
};

bool starts_like_zstd(std::string_view head) {
  const bool skippable =
      head.size() >= 4 && (head[0] & 0xf0) == 0x50 && head.substr(1, 3) == "\x2a\x4d\x18"sv;
  return skippable || head.starts_with("\x28\xb5\x2f\xfd"sv);
}

}  // namespace

std::unique_ptr<ByteSource> open_byte_source(const path& name) {
  auto file = std::make_unique<RawBytes>(name);
  const std::string_view head = file->peek(16);
  if (starts_like_zstd(head)) return std::make_unique<ZstdSource>(std::move(file));
  if (name.extension() == ".zst" && !head.empty()) {
    fail("{} is named .zst, but does not start like zstd data; copy it again or rename it",
         name.string());
  }
  // What can be read only once is judged here, and by its first bytes alone.
  const std::string_view reason = reason_not_text(head);
  if (!file->is_named_file() && !reason.empty() && reason != "NUL bytes") {
    fail("{} is not text, but {}: extract it on the way, as in `zcat FILE | ballast prepare -`",
         file->name(), reason);
  }
  return std::make_unique<PlainSource>(std::move(file));
}

std::string_view reason_not_text(std::string_view head) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kFormats = {{
      {"\x1f\x8b"sv, "gzip"},
      {"\xfd\x37\x7a\x58\x5a\x00"sv, "xz"},
      {"\x04\x22\x4d\x18"sv, "lz4"},
      {"PK\x03\x04"sv, "zip"},
      {"%PDF-"sv, "PDF"},
      {"\x89PNG"sv, "PNG"},
  }};
  for (const auto& [magic, format] : kFormats) {
    if (head.starts_with(magic)) return format;
  }
  if (head.starts_with("BZh") && head.substr(4, 6) == "1AY&SY") return "bzip2";
  return head.find('\0') == head.npos ? "" : "NUL bytes";
}

}  // namespace ballast::text
