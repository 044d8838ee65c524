// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/mapped_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <csignal>
#include <optional>
#include <string>

#include "ballast/system/file.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace ballast {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kSize = 1 << 20;

struct MappedRanges : testing::Test {
  MappedRanges() {
    for (const char* name : {"first", "cut\x1b[31m", "last"}) {
      write_text_atomically(folder / name, std::string(kSize, 'x'));
      files.emplace_back(MappedFile(folder / name));
    }
  }

  test::TemporaryFolder folder;
  std::vector<std::optional<MappedFile>> files;
};

TEST_F(MappedRanges, AFileThatBecomesShorterIsNamed) {
  testing::internal::CaptureStderr();
  const int code = test::run_in_child([&] {
    explain_lost_mappings(42);
    fs::resize_file(folder / "cut\x1b[31m", 10);
    return files[1]->text()[kSize / 2] == 'x' ? 1 : 0;
  });
  EXPECT_EQ(code, 42);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("cut\\x1b[31m: it has become shorter"), HasSubstr("ballast: ")));
}

TEST_F(MappedRanges, APlaceThatIsUsedAgainHasItsNewName) {
  testing::internal::CaptureStderr();
  const int code = test::run_in_child([&] {
    explain_lost_mappings(42);
    files[0].reset();
    const MappedFile again(folder / "last");
    fs::resize_file(folder / "last", 10);
    return again.text()[kSize / 2] == 'x' ? 1 : 0;
  });
  EXPECT_EQ(code, 42);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("last: it has become shorter"));
}

TEST_F(MappedRanges, OtherBusErrorsEndAsBefore) {
  const int code = test::run_in_child([&] {
    explain_lost_mappings(42);
    fs::resize_file(folder / "cut\x1b[31m", 10);
    forget_mapping(files[1]->bytes().data());
    return files[1]->text()[kSize / 2] == 'x' ? 1 : 0;
  });
  EXPECT_EQ(code, -SIGBUS);
}

}  // namespace
}  // namespace ballast
