// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/text_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/random.h"

namespace ballast::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TextFilesTest : public testing::Test {
 protected:
  TextFilesTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) /
              ("ballast_text_" + std::string(test->name()) + "_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  ~TextFilesTest() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& content) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }

  fs::path folder_;
};

// One frame with a checksum, as the zstd program writes it.
std::string compress(const std::string& text) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

// One member, as the gzip program writes it.
std::string gzip(const std::string& text) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Text that does not compress well, so that a .zst of it spans many blocks.
std::string random_lines(size_t size) {
  RandomStream random(3, "test/text_files");
  std::string text;
  while (text.size() < size) {
    text += std::to_string(random.bits());
    text += random.below(10) == 0 ? '\n' : ' ';
  }
  return text;
}

std::vector<std::string> read_all(TextReader& reader) {
  std::vector<std::string> documents;
  bool starts = true;
  for (TextPiece piece; reader.next(piece); starts = piece.ends_document) {
    if (starts) documents.push_back(reader.domains().at(piece.domain) + ": ");
    documents.back() += piece.text;
    EXPECT_TRUE(std::isnan(piece.nats));
  }
  return documents;
}

std::unique_ptr<TextReader> open(const std::vector<fs::path>& inputs) {
  return read_text_files(list_text_files(inputs, {.split_names = SplitNames::kIgnored}));
}

std::vector<std::string> read_all(const std::vector<fs::path>& inputs) {
  return read_all(*open(inputs));
}

std::string error_of(const std::vector<fs::path>& inputs) {
  try {
    read_all(inputs);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(TextFilesTest, ReadsFilesInTheOrderGivenAndCountsBytes) {
  const auto b = write("b.txt", "one\n<|endoftext|>\ntwo\n"), a = write("a.train.txt", "three");
  const auto reader = open({b, a});
  EXPECT_EQ(reader->total_bytes(), fs::file_size(a) + fs::file_size(b));
  EXPECT_EQ(reader->bytes_read(), 0U);
  EXPECT_THAT(read_all(*reader), ElementsAre("b: one", "b: two\n", "a.train: three"));
  EXPECT_EQ(reader->bytes_read(), reader->total_bytes());
}

TEST_F(TextFilesTest, DomainsAreFileNamesWithoutExtensionOrGiven) {
  const auto plain = write("notes", "1"), packed = write("wiki.train.txt.zst", compress("2")),
             hidden = write(".secret.txt", "3"), folder = write("dir.d/x.txt", "4").parent_path();
  EXPECT_THAT(read_all({plain, packed, hidden, folder, folder / "", "poems=" + packed.string(),
                        "poems=" + folder.string()}),
              ElementsAre("notes: 1", "wiki.train: 2", "secret: 3", "dir.d: 4", "dir.d: 4",
                          "poems: 2", "poems: 4"));
  EXPECT_THAT(
      open({"b=" + plain.string(), "a=" + plain.string(), "b=" + plain.string()})->domains(),
      ElementsAre("b", "a"));
}

TEST_F(TextFilesTest, AFileWithAnEqualsSignInItsNameIsAFile) {
  const auto file = write("x=y/a=b.txt", "text");
  EXPECT_THAT(read_all({file}), ElementsAre("a=b: text"));
  const fs::path old = fs::current_path();
  fs::current_path(file.parent_path());
  EXPECT_THAT(read_all({"a=b.txt"}), ElementsAre("a=b: text"));
  EXPECT_THAT(read_all({"c=a=b.txt"}), ElementsAre("c: text"));
  fs::current_path(old);
}

TEST_F(TextFilesTest, DirectoriesAreReadInOrderWithoutWhatIsNotText) {
  write("d/b/2.txt", "2");
  write("d/b.txt", "3");
  write("d/a.md", "1");
  write("d/z.gz", gzip("4"));
  write("d/.hidden.txt", "no");
  write("d/.git/config", "no");
  write("d/empty.txt", "");
  write("d/tokens.bin", std::string("no\0no", 5));
  write("d/packed_binary.zst", compress(std::string("no\0no", 5)));
  write("d/packed_binary.gz", gzip(std::string("no\0no", 5)));
  write("d/paper.pdf", "%PDF-1.4");
  fs::create_symlink("../../outside.txt", folder_ / "d" / "link.txt");
  fs::create_symlink("nowhere", folder_ / "d" / "dangling.txt");
  fs::create_directory_symlink(".", folder_ / "d" / "loop");
  EXPECT_THAT(read_all({folder_ / "d"}), ElementsAre("d: 1", "d: 2", "d: 3", "d: 4"));
  write("outside.txt", "not reached: the link points elsewhere");
  fs::remove(folder_ / "d" / "link.txt");
  fs::create_symlink("../outside.txt", folder_ / "d" / "link.txt");
  EXPECT_EQ(read_all({folder_ / "d"}).size(), 5U);
}

TEST_F(TextFilesTest, ReadsZstdOfSeveralFramesWhateverItsName) {
  const std::string text = random_lines(3 << 20);
  const std::string frames = compress(text.substr(0, 1 << 20)) + compress("") +
                             compress(text.substr(1 << 20)) + compress("\n<|endoftext|>\nend");
  EXPECT_THAT(read_all({write("a.txt.zst", frames)}), ElementsAre("a: " + text, "a: end"));
  const auto reader = open({write("a.txt", frames)});
  EXPECT_EQ(read_all(*reader).size(), 2U);
  EXPECT_EQ(reader->bytes_read(), frames.size());
}

TEST_F(TextFilesTest, ReadsGzipOfSeveralMembersWhateverItsName) {
  const std::string text = random_lines(3 << 20);
  const std::string members = gzip(text.substr(0, 1 << 20)) + gzip("") +
                              gzip(text.substr(1 << 20)) + gzip("\n<|endoftext|>\nend");
  EXPECT_THAT(read_all({write("a.txt.gz", members)}), ElementsAre("a: " + text, "a: end"));
  // Zeros at the end are padding.
  const auto reader = open({write("a.txt", members + std::string(1000, '\0'))});
  EXPECT_EQ(read_all(*reader).size(), 2U);
  EXPECT_EQ(reader->bytes_read(), members.size() + 1000);
}

TEST_F(TextFilesTest, RefusesWhatIsNotTextInStandardInputAndPipes) {
  const std::string xz("\xfd\x37\x7a\x58\x5a\0 packed", 13);
  const int saved = ::dup(STDIN_FILENO);
  const int file = ::open(write("in", xz).c_str(), O_RDONLY);
  ::dup2(file, STDIN_FILENO);
  const std::string error = error_of({"web=-"});
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  ::close(file);
  EXPECT_THAT(error, HasSubstr("standard input is not text: it is xz"));

  for (const std::string& content : {xz, gzip(std::string("x\0", 2))}) {
    const fs::path pipe = folder_ / ("pipe" + std::to_string(content.size()));
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    std::thread writer([&] { std::ofstream(pipe) << content; });
    EXPECT_THAT(error_of({pipe}), HasSubstr(pipe.string() + " is not text: it is "));
    writer.join();
  }
}

TEST_F(TextFilesTest, ReadsStandardInputAndPipes) {
  const int saved = ::dup(STDIN_FILENO);
  const int file = ::open(write("in", compress("from\n<|endoftext|>\nstdin")).c_str(), O_RDONLY);
  ::dup2(file, STDIN_FILENO);
  const auto reader = open({"-"});
  EXPECT_EQ(reader->total_bytes(), 0U);
  EXPECT_THAT(read_all(*reader), ElementsAre("stdin: from", "stdin: stdin"));
  EXPECT_THAT(error_of({"web=-"}), HasSubstr("no text in standard input"));  // it is at its end now
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  ::close(file);
  EXPECT_THAT(error_of({"-", "x=-"}), HasSubstr("twice"));

  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "through a pipe"; });
  EXPECT_THAT(read_all({pipe}), ElementsAre("pipe: through a pipe"));
  writer.join();
}

TEST_F(TextFilesTest, SaysWhatIsWrongWithAnInput) {
  EXPECT_THAT(error_of({}), HasSubstr("no text given"));
  const auto missing = folder_ / "missing.txt";
  EXPECT_THAT(error_of({missing}), HasSubstr("cannot find " + missing.string()));
  EXPECT_THAT(error_of({"wiki=nowhere.txt"}), HasSubstr("cannot find nowhere.txt"));
  EXPECT_THAT(error_of({write("file", "x") / "below"}), HasSubstr("file/below"));
  const auto empty = write("empty.txt", "");
  EXPECT_THAT(error_of({empty}), HasSubstr(empty.string() + " is empty"));
  EXPECT_THAT(error_of({write("e.zst", compress(""))}), HasSubstr("e.zst is empty"));
  const auto separators = write("separators.txt", "<|endoftext|>\n\n<|endoftext|>\n");
  EXPECT_THAT(error_of({separators}), HasSubstr("no text in " + separators.string()));
  EXPECT_THAT(error_of({write("x.gz", "\x1f\x8b...")}), HasSubstr("x.gz: damaged gzip data"));
  EXPECT_THAT(error_of({write("nul.txt", std::string("a\0b", 3))}),
              HasSubstr("nul.txt is not text: it is binary (it has NUL bytes)"));
  write("d/.hidden", "x");
  write("d/empty", "");
  EXPECT_THAT(error_of({folder_ / "d"}), HasSubstr("no text in the directory"));
  // Opens, but cannot be read.
  EXPECT_THAT(error_of({"/proc/self/mem"}), HasSubstr("cannot read /proc/self/mem"));
}

TEST_F(TextFilesTest, SaysWhereZstdDataIsDamaged) {
  const std::string packed = compress(random_lines(1 << 20));
  EXPECT_THAT(error_of({write("short.zst", packed.substr(0, packed.size() / 2))}),
              testing::AllOf(HasSubstr("short.zst"), HasSubstr("cut off"),
                             HasSubstr("after " + std::to_string(packed.size() / 2) + " bytes")));
  std::string broken = packed;
  for (size_t i = broken.size() / 2; i < broken.size() / 2 + 64; ++i) broken[i] ^= 0x5a;
  EXPECT_THAT(
      error_of({write("broken.zst", broken)}),
      testing::AllOf(HasSubstr("broken.zst"), HasSubstr("damaged"), HasSubstr("near byte")));
  EXPECT_THAT(error_of({write("tail.zst", packed + "garbage")}),
              testing::AllOf(HasSubstr("damaged"), HasSubstr(std::to_string(packed.size()))));
  EXPECT_THAT(error_of({write("not.zst", "plain text")}), HasSubstr("does not start like zstd"));
  EXPECT_THAT(error_of({write("tiny.zst", packed.substr(0, 3))}), HasSubstr("tiny.zst"));
}

TEST_F(TextFilesTest, SaysWhereGzipDataIsDamaged) {
  const std::string packed = gzip(random_lines(1 << 20));
  EXPECT_THAT(error_of({write("short.gz", packed.substr(0, packed.size() / 2))}),
              testing::AllOf(HasSubstr("short.gz"), HasSubstr("cut off"),
                             HasSubstr("after " + std::to_string(packed.size() / 2) + " bytes")));
  // Of what was checked last, the length, a byte is missing.
  EXPECT_THAT(error_of({write("last.gz", packed.substr(0, packed.size() - 1))}),
              HasSubstr("cut off"));
  std::string broken = packed;
  for (size_t i = broken.size() / 2; i < broken.size() / 2 + 64; ++i) broken[i] ^= 0x5a;
  EXPECT_THAT(error_of({write("broken.gz", broken)}),
              testing::AllOf(HasSubstr("broken.gz"), HasSubstr("damaged"), HasSubstr("near byte")));
  std::string other_sum = packed;
  other_sum[other_sum.size() - 6] ^= 1;
  EXPECT_THAT(error_of({write("sum.gz", other_sum)}), HasSubstr("incorrect data check"));
  EXPECT_THAT(error_of({write("tail.gz", packed + "garbage")}), HasSubstr("damaged"));
  EXPECT_THAT(error_of({write("zeros.gz", packed + std::string(9, '\0') + packed)}),
              HasSubstr("more after the zeros"));
  EXPECT_THAT(error_of({write("not.gz", "plain text")}), HasSubstr("does not start like gzip"));
}

long resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
  }
  return -1;
}

// 128 MB of text, plain and as lines of JSON in gzip, whose own memory is small.
TEST_F(TextFilesTest, MemoryDoesNotGrowWithTheFile) {
  const auto plain = folder_ / "large.txt";
  std::string lines = random_lines(4 << 20);
  {
    std::ofstream out(plain, std::ios::binary);
    for (int i = 0; i < 32; ++i) out << lines;
  }
  std::ranges::replace(lines, '\n', ' ');
  const std::string member = gzip("{\"text\": \"" + lines + "\"}\n");
  const auto packed = folder_ / "large.jsonl.gz";
  {
    std::ofstream out(packed, std::ios::binary);
    for (int i = 0; i < 32; ++i) out << member;
  }
  for (const fs::path& file : {plain, packed}) {
    std::ofstream("/proc/self/clear_refs") << 5;  // the peak starts again from here
    const long before = resident_kilobytes();
    const auto reader = open({file});
    size_t bytes = 0;
    for (TextPiece piece; reader->next(piece);) bytes += piece.text.size();
    EXPECT_EQ(bytes, fs::file_size(plain));
    EXPECT_LT(resident_kilobytes() - before, 32 << 10) << "reading " << file;
  }
}

}  // namespace
}  // namespace ballast::text
