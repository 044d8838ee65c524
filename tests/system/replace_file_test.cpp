// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace ballast {
namespace {

TEST(ReplaceFile, PutsTheNewContentInPlace) {
  const test::TemporaryFolder folder;
  const auto file = folder / "a.txt";
  write_text_atomically(file, "old");
  write_text_atomically(file, "new");
  EXPECT_EQ(read_text(file), "new");
  EXPECT_FALSE(fs::exists(folder / "a.txt.tmp"));
}

TEST(ReplaceFile, LeavesTheOldContentAndNoTemporaryWhenWritingThrows) {
  const test::TemporaryFolder folder;
  const auto file = folder / "a.txt";
  write_text_atomically(file, "old");
  EXPECT_THROW(replace_file(file,
                            [](OutputFile& out) {
                              out.write(std::string_view("half"));
                              throw UserError("stop");
                            }),
               UserError);
  EXPECT_EQ(read_text(file), "old");
  EXPECT_FALSE(fs::exists(folder / "a.txt.tmp"));
}

TEST(ReplaceFile, LeavesTheOldContentAndNoTemporaryWhenTheDiskIsFull) {
  const test::TemporaryFolder folder;
  const auto file = folder / "a.txt";
  write_text_atomically(file, "old");
  const int code = test::run_in_child([&] {
    test::limit_file_size(100);
    try {
      write_text_atomically(file, std::string(3 << 20, 'x'));
    } catch (const UserError& error) {
      return std::string(error.what()).find("a.txt") != std::string::npos ? 7 : 1;
    }
    return 2;
  });
  EXPECT_EQ(code, 7);
  EXPECT_EQ(read_text(file), "old");
  EXPECT_FALSE(fs::exists(folder / "a.txt.tmp"));
}

}  // namespace
}  // namespace ballast
