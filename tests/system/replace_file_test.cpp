// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
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

TEST(ReplaceFile, ALinkOrFileUnderTheTemporaryNameIsNeitherFollowedNorInTheWay) {
  const test::TemporaryFolder folder;
  const auto file = folder / "a.txt", planted = folder / "a.txt.tmp", other = folder / "other";
  write_text_atomically(other, "precious");
  fs::create_symlink(other, planted);
  write_text_atomically(file, "one");
  fs::create_symlink(folder / "nowhere", planted);
  write_text_atomically(file, "two");
  fs::create_hard_link(other, planted);
  write_text_atomically(file, "three");
  EXPECT_EQ(read_text(file), "three");
  EXPECT_EQ(read_text(other), "precious");
  EXPECT_FALSE(fs::is_symlink(file) || fs::exists(planted) || fs::exists(folder / "nowhere"));
}

TEST(ReplaceFile, AFolderUnderTheTemporaryNameStays) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder / "a.txt.tmp" / "precious");
  write_text_atomically(folder / "a.txt", "new");
  EXPECT_EQ(read_text(folder / "a.txt"), "new");
  EXPECT_TRUE(fs::exists(folder / "a.txt.tmp" / "precious"));
  EXPECT_FALSE(fs::exists(folder / "a.txt.tmp1"));
}

TEST(ReplaceFile, AFileThatAnotherProcessPutInItsPlaceIsNotTakenForIt) {
  const test::TemporaryFolder folder;
  write_text_atomically(folder / "a.txt", "old");
  const auto write = [&](OutputFile& out) {
    out.write(std::string_view("ours"));
    OutputFile(folder / "a.txt.tmp").write(std::string_view("theirs"));
  };
  EXPECT_THAT(test::error_of([&] { replace_file(folder / "a.txt", write); }),
              testing::HasSubstr("a.txt.tmp: another process has removed or replaced it"));
  EXPECT_EQ(read_text(folder / "a.txt"), "old");
}

TEST(OwnFolder, ALinkOfItsNameIsReplaced) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder / "other" / "precious");
  fs::create_directory_symlink(folder / "other", folder / "own");
  make_own_folder(folder / "own");
  make_own_folder(folder / "own");
  EXPECT_FALSE(fs::is_symlink(folder / "own"));
  EXPECT_TRUE(fs::is_empty(folder / "own"));
  EXPECT_TRUE(fs::exists(folder / "other" / "precious"));
  EXPECT_THAT(test::error_of([&] { make_own_folder(folder / "no" / "parent"); }),
              testing::HasSubstr("parent"));
}

TEST(FileLock, ALinkOfItsNameIsNotWrittenThrough) {
  const test::TemporaryFolder folder;
  write_text_atomically(folder / "other", "precious");
  fs::create_symlink(folder / "other", folder / "lock");
  const FileLock lock(folder / "lock", "this");
  EXPECT_FALSE(fs::is_symlink(folder / "lock"));
  EXPECT_EQ(read_text(folder / "other"), "precious");
}

}  // namespace
}  // namespace ballast
