// SPDX-License-Identifier: Apache-2.0
// That the official reader accepts the files is shown by tests/oracles/tensorboard_test.py.
#include "ballast/record/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ballast/record/crc32c.h"
#include "ballast/system/error.h"
#include "tests/support/temporary_folder.h"

namespace ballast::record {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST(Crc32c, HasTheKnownValues) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);  // RFC 3720, B.4
}

template <typename T>
T number_at(std::string_view bytes, size_t offset) {
  T number{};
  std::memcpy(&number, bytes.substr(offset, sizeof(T)).data(), sizeof(T));
  return number;
}

uint32_t masked(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

// The events of a file, each record's checksums checked.
std::vector<std::string> events_in(const fs::path& path) {
  std::vector<std::string> events;
  const std::string bytes = read_text(path);
  for (size_t at = 0; at < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, at);
    EXPECT_EQ(number_at<uint32_t>(bytes, at + 8), masked(bytes.substr(at, 8)));
    events.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(number_at<uint32_t>(bytes, at + 12 + length), masked(events.back()));
    at += 16 + length;
  }
  return events;
}

TEST(Tensorboard, EveryCallIsARecordInTheFileAtOnce) {
  const test::TemporaryFolder folder;
  TensorboardWriter writer(folder / "tensorboard", 0);
  EXPECT_THAT(events_in(writer.path()), SizeIs(2));  // the version and the start
  writer.scalars(1, std::vector<Scalar>{{"train/loss", 1.5}, {"train/norm", 2}});
  writer.text(1, "sample", "Once upon");
  const auto events = events_in(writer.path());
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_THAT(events[0], HasSubstr("brain.Event:2"));
  EXPECT_THAT(events[2], HasSubstr("train/norm"));
  EXPECT_THAT(events[3], HasSubstr("Once upon"));
}

TEST(Tensorboard, EachStartHasAFileThatSortsAfterTheOnesBefore) {
  const test::TemporaryFolder folder;
  fs::path last;
  for (int start = 0; start < 5; ++start) {
    const TensorboardWriter writer(folder.path(), 10);
    EXPECT_GT(writer.path(), last);
    last = writer.path();
  }
}

TEST(Tensorboard, UnwritableFoldersAreNamed) {
  const test::TemporaryFolder folder;
  write_text_atomically(folder / "file", "text");
  try {
    TensorboardWriter(folder / "file" / "tensorboard", 0);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("file/tensorboard"));
  }
}

}  // namespace
}  // namespace ballast::record
