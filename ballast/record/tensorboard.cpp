// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstring>

#include "ballast/record/crc32c.h"
#include "ballast/system/error.h"

namespace ballast::record {
namespace {

static_assert(std::endian::native == std::endian::little, "TFRecord is little-endian");

constexpr std::string_view kNameStart = "events.out.tfevents.";

// Field numbers of TensorFlow's event.proto, summary.proto, tensor.proto.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr int kStatus = 1;
constexpr uint64_t kStart = 1;
}  // namespace session_log
namespace summary {
constexpr int kValue = 1;
}
namespace value {
constexpr int kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9;
}
namespace metadata {
constexpr int kPluginData = 1, kPluginName = 1;
}
namespace tensor {
constexpr int kDtype = 1, kShape = 2, kStringValue = 8;
constexpr uint64_t kStringType = 7;
constexpr int kShapeDimension = 2, kDimensionSize = 1;
}  // namespace tensor

template <typename T>
void append_raw(std::string& out, T number) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &number, sizeof(T));
  out.append(bytes, sizeof(T));
}

// A protocol buffer message, written field by field.
class Message {
 public:
  Message& number(int field, uint64_t number) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(number);
    return *this;
  }
  Message& fixed(int field, double number) {
    varint(static_cast<uint64_t>(field) << 3 | 1);
    append_raw(bytes_, number);
    return *this;
  }
  Message& fixed(int field, float number) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    append_raw(bytes_, number);
    return *this;
  }
  Message& bytes(int field, std::string_view bytes) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(bytes.size());
    bytes_ += bytes;
    return *this;
  }
  Message& message(int field, const Message& inner) { return bytes(field, inner.bytes_); }
  std::string_view view() const { return bytes_; }

 private:
  void varint(uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes_ += static_cast<char>(number | 0x80);
    bytes_ += static_cast<char>(number);
  }
  std::string bytes_;
};

Message event_at(uint64_t step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return Message()
      .fixed(event::kWallTime, std::chrono::duration<double>(now).count())
      .number(event::kStep, step);
}

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

std::string framed(std::string_view event) {
  std::string record;
  append_raw<uint64_t>(record, event.size());
  append_raw(record, masked_crc(record));
  record += event;
  append_raw(record, masked_crc(event));
  return record;
}

// The readers take files in the order of their names, which start with a time in seconds: two
// starts within one second must not share it.
fs::path next_file(const fs::path& folder) {
  make_folder(folder);
  int64_t seconds = std::chrono::duration_cast<std::chrono::seconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  std::error_code code;
  auto entry = fs::directory_iterator(folder, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kNameStart)) continue;
    int64_t earlier = 0;
    std::from_chars(name.data() + kNameStart.size(), name.data() + name.size(), earlier);
    seconds = std::max(seconds, earlier + 1);
  }
  if (code) fail("cannot look into {}: {}", folder.string(), code.message());
  char host[256] = "localhost";
  ::gethostname(host, sizeof(host) - 1);
  return folder / fmt::format("{}{:010}.{}.{}.0", kNameStart, seconds, host, ::getpid());
}

}  // namespace

TensorboardWriter::TensorboardWriter(const fs::path& folder, uint64_t first_step)
    : path_(next_file(folder)), file_(path_) {
  write_event(event_at(0).bytes(event::kFileVersion, "brain.Event:2").view());
  // A start makes readers forget what earlier files say of this step and later ones.
  write_event(
      event_at(first_step)
          .message(event::kSessionLog, Message().number(session_log::kStatus, session_log::kStart))
          .view());
}

void TensorboardWriter::scalars(uint64_t step, std::span<const Scalar> values) {
  Message summary;
  for (const Scalar& scalar : values) {
    summary.message(summary::kValue,
                    Message()
                        .bytes(value::kTag, scalar.tag)
                        .fixed(value::kSimpleValue, static_cast<float>(scalar.value)));
  }
  write_event(event_at(step).message(event::kSummary, summary).view());
}

void TensorboardWriter::text(uint64_t step, std::string_view tag, std::string_view text) {
  const Message plugin = Message().bytes(metadata::kPluginName, "text");
  const Message shape =
      Message().message(tensor::kShapeDimension, Message().number(tensor::kDimensionSize, 1));
  const Message content = Message()
                              .number(tensor::kDtype, tensor::kStringType)
                              .message(tensor::kShape, shape)
                              .bytes(tensor::kStringValue, text);
  const Message entry =
      Message()
          .bytes(value::kTag, tag)
          .message(value::kTensor, content)
          .message(value::kMetadata, Message().message(metadata::kPluginData, plugin));
  write_event(
      event_at(step).message(event::kSummary, Message().message(summary::kValue, entry)).view());
}

void TensorboardWriter::write_event(std::string_view event) { file_.append(framed(event)); }

}  // namespace ballast::record
