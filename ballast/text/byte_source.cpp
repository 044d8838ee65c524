// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/byte_source.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/system/input_stream.h"
#include "ballast/text/not_text.h"

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

// zlib counts in 32 bits.
constexpr size_t kInflateMost = 1 << 30;

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<RawBytes> file)
      : file_(std::move(file)), block_(kInputBlock) {
    constexpr int kWindowOfGzip = 15 + 16;  // the largest window; gzip's header and checksum
    if (inflateInit2(&stream_, kWindowOfGzip) != Z_OK) throw std::bad_alloc();
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  size_t read(std::span<char> buffer) override {
    size_t filled = 0;
    while (filled < buffer.size() && begin_member()) {
      const size_t room = std::min(buffer.size() - filled, kInflateMost);
      stream_.next_out = reinterpret_cast<Bytef*>(buffer.data() + filled);
      stream_.avail_out = static_cast<uInt>(room);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      filled += room - stream_.avail_out;
      if (code == Z_STREAM_END) {
        in_member_ = false;
        inflateReset(&stream_);
      } else if (code == Z_MEM_ERROR) {
        throw std::bad_alloc();
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        damaged(stream_.msg != nullptr ? stream_.msg : "it cannot be decompressed");
      } else if (stream_.avail_in == 0 && !refill() && stream_.avail_out > 0) {
        fail(
            "{}: the gzip data is cut off: the file ends after {} bytes within a member; copy it "
            "again",
            file_->name(), bytes_consumed());
      }
    }
    return filled;
  }

  uint64_t bytes_consumed() const override { return file_->offset() - stream_.avail_in; }

 private:
  // Whether there is a member to read from. Zeros after the last one are padding, as of tapes.
  bool begin_member() {
    while (!in_member_) {
      if (stream_.avail_in == 0 && !refill()) return false;
      if (*stream_.next_in == 0 && members_ > 0) {
        ++stream_.next_in;
        --stream_.avail_in;
        padded_ = true;
        continue;
      }
      if (padded_) damaged("there is more after the zeros that follow its end");
      in_member_ = true;
      ++members_;
    }
    return true;
  }

  bool refill() {
    const size_t size = file_->read(block_);
    stream_.next_in = reinterpret_cast<Bytef*>(block_.data());
    stream_.avail_in = static_cast<uInt>(size);
    return size > 0;
  }

  [[noreturn]] void damaged(std::string_view why) const {
    fail("{}: damaged gzip data near byte {} of the file: {}; check it with `gzip -t`",
         file_->name(), bytes_consumed(), why);
  }

  std::unique_ptr<RawBytes> file_;
  std::vector<char> block_;
  z_stream stream_ = {};
  bool in_member_ = false, padded_ = false;
  uint64_t members_ = 0;
};

// What can be read only once is judged by its first bytes as it is opened.
class JudgedSource : public ByteSource {
 public:
  JudgedSource(std::unique_ptr<ByteSource> source, const std::string& name)
      : source_(std::move(source)), head_(kHeadBytes, '\0') {
    head_.resize(source_->read(head_));
    const std::string reason = reason_not_text(head_);
    if (!reason.empty())
      fail("{} is not text: it is {}; {}", name, reason, cure_for_not_text(reason));
  }

  size_t read(std::span<char> buffer) override {
    const size_t from_head = std::min(buffer.size(), head_.size());
    std::copy_n(head_.begin(), from_head, buffer.begin());
    head_.erase(0, from_head);
    return from_head + source_->read(buffer.subspan(from_head));
  }
  uint64_t bytes_consumed() const override { return source_->bytes_consumed(); }

 private:
  std::unique_ptr<ByteSource> source_;
  std::string head_;
};

bool starts_like_zstd(std::string_view head) {
  const bool skippable =
      head.size() >= 4 && (head[0] & 0xf0) == 0x50 && head.substr(1, 3) == "\x2a\x4d\x18"sv;
  return skippable || head.starts_with("\x28\xb5\x2f\xfd"sv);
}

std::unique_ptr<ByteSource> decompressed(std::unique_ptr<RawBytes> file, const path& name) {
  const std::string_view head = file->peek(16);
  if (starts_like_zstd(head)) return std::make_unique<ZstdSource>(std::move(file));
  if (head.starts_with("\x1f\x8b"sv)) return std::make_unique<GzipSource>(std::move(file));
  const std::string extension = name.extension().string();
  if ((extension == ".zst" || extension == ".gz") && !head.empty()) {
    fail("{} is named {}, but does not start like {} data; copy it again or rename it",
         name.string(), extension, extension == ".gz" ? "gzip" : "zstd");
  }
  return std::make_unique<PlainSource>(std::move(file));
}

}  // namespace

std::unique_ptr<ByteSource> open_byte_source(const path& name) {
  auto file = std::make_unique<RawBytes>(name);
  const bool can_be_opened_again = file->is_named_file();
  const std::string shown = file->name();
  auto source = decompressed(std::move(file), name);
  if (can_be_opened_again) return source;
  return std::make_unique<JudgedSource>(std::move(source), shown);
}

}  // namespace ballast::text
