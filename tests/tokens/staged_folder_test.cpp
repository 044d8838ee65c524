// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/staged_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/system/error.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/tokens/sample_tokens.h"

namespace ballast::tokens {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Stages a folder that looks like a data set holding `content`.
void publish(const fs::path& target, ExistingOutput existing, const std::string& content) {
  StagedFolder staged(target, existing);
  test::write_bytes(staged.path() / "index.json", "ballast-tokens " + content);
  staged.publish();
}

TEST(StagedFolder, AppearsWholeWhenPublished) {
  const test::TemporaryFolder folder;
  const fs::path target = folder / "a/b/data";  // parents are made
  {
    StagedFolder staged(target / "", ExistingOutput::kRefuse);  // "data/" is "data"
    test::write_bytes(staged.path() / "one", "1");
    EXPECT_FALSE(fs::exists(target));
    staged.publish();
  }
  EXPECT_THAT(names_in(target), ElementsAre("one"));
  EXPECT_THAT(names_in(folder / "a/b"), ElementsAre("data"));
}

TEST(StagedFolder, LeavesNothingUnlessPublished) {
  const test::TemporaryFolder folder;
  {
    StagedFolder staged(folder / "data", ExistingOutput::kRefuse);
    test::write_bytes(staged.path() / "one", "1");
  }
  { const StagedFolder staged(folder / "a/b/data", ExistingOutput::kRefuse); }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(StagedFolder, RefusesWhatIsThereAndTakesAnEmptyFolder) {
  const test::TemporaryFolder folder;
  publish(folder / "data", ExistingOutput::kRefuse, "old");
  EXPECT_THAT(test::error_of([&] { StagedFolder(folder / "data", ExistingOutput::kRefuse); }),
              HasSubstr("data exists already: choose another --out, or add --overwrite"));
  fs::create_directory(folder / "empty");
  publish(folder / "empty", ExistingOutput::kRefuse, "x");
  EXPECT_THAT(names_in(folder / "empty"), ElementsAre("index.json"));
}

TEST(StagedFolder, NeverReplacesWhatIsNoDataSet) {
  const test::TemporaryFolder folder;
  test::write_bytes(folder / "file", "precious");
  fs::create_directory(folder / "home");
  test::write_bytes(folder / "home/thesis.txt", "precious");
  test::write_bytes(folder / "home/index.json", "{\"of\": \"something else\"}");
  for (const char* name : {"file", "home"}) {
    EXPECT_THAT(test::error_of([&] { StagedFolder(folder / name, ExistingOutput::kReplace); }),
                HasSubstr("is not a data set of `ballast prepare`"));
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("file", "home"));
}

TEST(StagedFolder, NeverReplacesWhatLiesInADataSet) {
  const test::TemporaryFolder folder;
  const fs::path data = folder / "data";
  publish(data, ExistingOutput::kRefuse, "old");
  test::write_bytes(data / "train-00000.tokens", "its own");
  test::write_bytes(data / "tokenizer.json", "its own");
  test::write_bytes(data / "tokenizer_config.json", "its own");
  const auto message = [&] {
    return test::error_of([&] { StagedFolder(data, ExistingOutput::kReplace); });
  };
  EXPECT_EQ(message(), "no error");
  test::write_bytes(data / "thesis.txt", "precious");
  EXPECT_THAT(message(), HasSubstr("thesis.txt would be lost with the data set it lies in"));
  EXPECT_EQ(read_text(data / "thesis.txt"), "precious");
  fs::remove(data / "thesis.txt");
  fs::create_directory(data / "more.tokens");
  EXPECT_THAT(message(), HasSubstr("more.tokens would be lost"));
}

TEST(StagedFolder, ChecksAgainForWhatWasPutThereMeanwhile) {
  const test::TemporaryFolder folder;
  publish(folder / "data", ExistingOutput::kRefuse, "old");
  {
    StagedFolder staged(folder / "data", ExistingOutput::kReplace);
    test::write_bytes(folder / "data/thesis.txt", "precious");
    EXPECT_THAT(test::error_of([&] { staged.publish(); }), HasSubstr("thesis.txt would be lost"));
  }
  EXPECT_THAT(names_in(folder / "data"), ElementsAre("index.json", "thesis.txt"));
}

TEST(StagedFolder, ReplacesADataSetOnlyWhenPublished) {
  const test::TemporaryFolder folder;
  publish(folder / "data", ExistingOutput::kRefuse, "old");
  {
    StagedFolder staged(folder / "data", ExistingOutput::kReplace);
    test::write_bytes(staged.path() / "index.json", "ballast-tokens new");
    EXPECT_EQ(read_text(folder / "data/index.json"), "ballast-tokens old");
  }
  EXPECT_EQ(read_text(folder / "data/index.json"), "ballast-tokens old");
  publish(folder / "data", ExistingOutput::kReplace, "new");
  EXPECT_EQ(read_text(folder / "data/index.json"), "ballast-tokens new");
  EXPECT_THAT(names_in(folder / "data"), ElementsAre("index.json"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("data"));
}

TEST(StagedFolder, WritesWhereALinkLeadsTo) {
  const test::TemporaryFolder folder;
  publish(folder / "disk/data", ExistingOutput::kRefuse, "old");
  fs::create_directory_symlink(folder / "disk/data", folder / "link");
  publish(folder / "link", ExistingOutput::kReplace, "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_text(folder / "disk/data/index.json"), "ballast-tokens new");
  EXPECT_THAT(names_in(folder / "disk"), ElementsAre("data"));
}

TEST(StagedFolder, RefusesToShareAnOutput) {
  const test::TemporaryFolder folder;
  const StagedFolder first(folder / "data", ExistingOutput::kRefuse);
  EXPECT_THAT(test::error_of([&] { StagedFolder(folder / "data", ExistingOutput::kRefuse); }),
              HasSubstr("is already in use by process"));
  EXPECT_TRUE(fs::exists(first.path()));
}

TEST(StagedFolder, CleansUpAfterAKilledProcess) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder / ".data.preparing/sub");  // as a killed process leaves it
  test::write_bytes(folder / ".data.preparing/lock", "1");
  test::write_bytes(folder / ".data.preparing/train-00000.tokens", "half");
  publish(folder / "data", ExistingOutput::kRefuse, "x");
  EXPECT_THAT(names_in(folder / "data"), ElementsAre("index.json"));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("data"));
}

// Where names cannot be exchanged, a process killed between the two renames leaves no target.
TEST(StagedFolder, RestoresADataSetThatWasBeingReplaced) {
  const test::TemporaryFolder folder;
  publish(folder / ".data.replaced", ExistingOutput::kRefuse, "old");
  EXPECT_THAT(test::error_of([&] { StagedFolder(folder / "data", ExistingOutput::kRefuse); }),
              HasSubstr("data exists already"));
  EXPECT_EQ(read_text(folder / "data/index.json"), "ballast-tokens old");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("data"));
}

TEST(StagedFolder, LinksUnderItsHiddenNamesAreNotFollowed) {
  const test::TemporaryFolder folder;
  fs::create_directory(folder / "home");
  test::write_bytes(folder / "home/file", "precious");
  for (const char* name : {".data.preparing", ".data.replaced"})
    fs::create_directory_symlink(folder / "home", folder / name);
  publish(folder / "data", ExistingOutput::kRefuse, "new");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("data", "home"));
  EXPECT_THAT(names_in(folder / "home"), ElementsAre("file"));
  EXPECT_FALSE(fs::is_symlink(folder / "data"));
}

}  // namespace
}  // namespace ballast::tokens
