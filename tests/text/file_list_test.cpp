// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/file_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "ballast/system/error.h"
#include "ballast/text/split_names.h"
#include "tests/support/temporary_folder.h"

namespace ballast::text {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class FileListTest : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& content = "text") const {
    const fs::path path = folder_ / "corpus" / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  fs::path corpus() const { return folder_ / "corpus"; }

  // Each as "file name: domain, split".
  static std::vector<std::string> describe(const FileList& list) {
    std::vector<std::string> lines;
    for (const TextFile& file : list.files) {
      std::string line = file.path.filename().string() + ": " + list.domains.at(file.domain);
      if (file.split != Split::kUnsaid) line += ", " + std::string(name_of(file.split));
      lines.push_back(line);
    }
    return lines;
  }

  test::TemporaryFolder folder_;
};

std::string error_of(const std::vector<fs::path>& inputs, const ListOptions& options = {}) {
  try {
    list_text_files(inputs, options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(FileListTest, NamesOfFilesAndFoldersTellTheSplit) {
  write("wiki.train.txt");
  write("wiki.valid.txt");
  write("test/a.txt");
  write("other.txt");
  EXPECT_THAT(describe(list_text_files({corpus()})),
              ElementsAre("other.txt: corpus", "a.txt: corpus, test",
                          "wiki.train.txt: corpus, train", "wiki.valid.txt: corpus, valid"));
  // A folder's own name counts, and names that are no domain give way to the folder around.
  write("train/b.txt");
  EXPECT_THAT(describe(list_text_files({corpus() / "train", corpus() / "test", write("val.txt")})),
              ElementsAre("b.txt: corpus, train", "a.txt: corpus, test", "val.txt: corpus, valid"));
}

TEST_F(FileListTest, SplitsOfOneThingAreOneDomain) {
  EXPECT_THAT(describe(list_text_files({write("wiki.train.tokens"), write("wiki.test.tokens"),
                                        write("wiki-00001-of-00002.txt")})),
              ElementsAre("wiki.train.tokens: wiki, train", "wiki.test.tokens: wiki, test",
                          "wiki-00001-of-00002.txt: wiki"));
}

TEST_F(FileListTest, NamesTellNothingWhereIgnoredOrNothingIsLeftToTrainOn) {
  const fs::path train = write("wiki.train.txt"), test = write("wiki.test.txt");
  EXPECT_THAT(describe(list_text_files({train, test}, {.split_names = SplitNames::kIgnored})),
              ElementsAre("wiki.train.txt: wiki.train", "wiki.test.txt: wiki.test"));
  EXPECT_THAT(describe(list_text_files({test})), ElementsAre("wiki.test.txt: wiki.test"));
  EXPECT_THAT(describe(list_text_files({test, write("valid.txt")})),
              ElementsAre("wiki.test.txt: wiki.test", "valid.txt: valid"));
}

TEST_F(FileListTest, DomainsMayBeFilesOrFolders) {
  write("a.txt");
  write("code/x.jsonl.gz", "{}");
  EXPECT_THAT(error_of({corpus()}), HasSubstr("x.jsonl.gz"));  // not gzip
  fs::remove(corpus() / "code/x.jsonl.gz");
  write("code/deep/x.jsonl", "{}");
  write("law/train/y-00000-of-00002.txt");
  write("law/test/y.txt");
  EXPECT_THAT(describe(list_text_files({corpus()}, {.domains = DomainsBy::kFile})),
              ElementsAre("a.txt: a", "x.jsonl: code/deep/x", "y.txt: law/y, test",
                          "y-00000-of-00002.txt: law/y, train"));
  EXPECT_THAT(describe(list_text_files({corpus()}, {.domains = DomainsBy::kFolder})),
              ElementsAre("a.txt: corpus", "x.jsonl: code", "y.txt: law, test",
                          "y-00000-of-00002.txt: law, train"));
  // Of several inputs or a named one, with the input's name.
  EXPECT_THAT(
      describe(list_text_files({"mine=" + corpus().string()}, {.domains = DomainsBy::kFolder}))[1],
      "x.jsonl: mine/code");
  const std::vector<fs::path> both = {corpus() / "code", corpus() / "a.txt"};
  EXPECT_THAT(describe(list_text_files(both, {.domains = DomainsBy::kFile})),
              ElementsAre("x.jsonl: code/deep/x", "a.txt: a"));
  EXPECT_THAT(describe(list_text_files(both, {.domains = DomainsBy::kFolder})),
              ElementsAre("x.jsonl: code/deep", "a.txt: corpus"));
}

TEST_F(FileListTest, WhatIsSkippedIsToldWithItsReason) {
  write("a.txt");
  write("b/paper.pdf", "%PDF-1.4");
  write("b/empty.txt", "");
  write(".git/config");
  fs::create_symlink("nowhere", corpus() / "c");
  fs::create_directory_symlink(".", corpus() / "loop");
  const FileList list = list_text_files({corpus()});
  std::vector<std::string> skipped;
  for (const SkippedFile& file : list.skipped)
    skipped.push_back(file.path.lexically_relative(corpus()).string() + " is " + file.reason);
  EXPECT_THAT(skipped, ElementsAre(".git is hidden (its name starts with a dot)",
                                   "b/empty.txt is empty", "b/paper.pdf is a PDF",
                                   "c is a link that leads nowhere", "loop is a link to a folder"));
  EXPECT_THAT(error_of({corpus() / "b"}),
              testing::AllOf(HasSubstr("no text in the directory"), HasSubstr("2 skipped")));
  EXPECT_THAT(error_of({corpus() / "b/paper.pdf"}),
              HasSubstr("paper.pdf is not text: it is a PDF"));
}

TEST_F(FileListTest, TheFormatIsThatOfTheNameUnlessGiven) {
  const fs::path lines = write("a.jsonl"), plain = write("b.txt");
  EXPECT_EQ(list_text_files({lines}).files[0].format, TextFormat::kJsonLines);
  EXPECT_EQ(list_text_files({write("a.ndjson")}).files[0].format, TextFormat::kJsonLines);
  EXPECT_EQ(list_text_files({plain}).files[0].format, TextFormat::kPlain);
  EXPECT_EQ(list_text_files({lines}, {.format = TextFormat::kPlain}).files[0].format,
            TextFormat::kPlain);
  EXPECT_EQ(list_text_files({plain}, {.format = TextFormat::kJsonLines}).files[0].format,
            TextFormat::kJsonLines);
  EXPECT_EQ(list_text_files({"-"}, {.format = TextFormat::kJsonLines}).files[0].format,
            TextFormat::kJsonLines);
  EXPECT_EQ(list_text_files({write("part-0", "PAR1 rest")}).files[0].format, TextFormat::kParquet);
  EXPECT_THAT(error_of({write("a.parquet")}), HasSubstr("a.parquet is named .parquet, but"));
  EXPECT_THAT(error_of({"-"}, {.format = TextFormat::kParquet}), HasSubstr("standard input"));
}

}  // namespace
}  // namespace ballast::text
