// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/scores/score_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>

#include "ballast/checkpoint/safetensors.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace ballast::scores {
namespace {

using test::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ScoreFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, std::string_view content) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  std::string text_error(std::string_view content) {
    const std::string path = write("scores.csv", content);
    return error_of([&] { read_scores(path); });
  }

  test::TemporaryFolder folder_;
};

std::vector<float> values_of(const StoredScores& stored) {
  const assignment::ScoreMatrix& matrix = stored.matrix;
  std::vector<float> values;
  for (int64_t t = 0; t < matrix.tokens; ++t) {
    for (int64_t e = 0; e < matrix.experts; ++e) {
      const int64_t at = t * matrix.token_stride + e * matrix.expert_stride;
      if (matrix.type == assignment::ScoreType::kFloat32)
        values.push_back(static_cast<const float*>(matrix.data)[at]);
      else if (matrix.type == assignment::ScoreType::kBFloat16)
        values.push_back(
            std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(matrix.data)[at]} << 16));
      else
        ADD_FAILURE() << "fp16 is for the oracle";
    }
  }
  return values;
}

template <typename Value>
std::string_view raw(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

std::string npy(const std::string& header, std::string_view data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  const auto size = static_cast<uint32_t>(header.size());
  file.append(reinterpret_cast<const char*>(&size), version == 1 ? 2 : 4);
  return file + header + std::string(data);
}

std::string float_header(const std::string& shape, const std::string& type = "<f4",
                         const std::string& fortran = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

const std::vector<float> kSix = {1, 2, 3, 4, 5, 6};

TEST_F(ScoreFiles, NumpyArraysOfAllVersionsAndOrders) {
  for (const int version : {1, 2, 3}) {
    const auto rows = read_scores(write("a.npy", npy(float_header("(2, 3)"), raw(kSix), version)));
    EXPECT_THAT(values_of(rows), ElementsAre(1, 2, 3, 4, 5, 6));
  }
  const auto turned =
      read_scores(write("a.npy", npy(float_header("(2, 3)", "<f4", "True"), raw(kSix))));
  EXPECT_THAT(values_of(turned), ElementsAre(1, 3, 5, 2, 4, 6));
  const std::vector<double> doubles = {1.5, -2, 1e-50, 1e30, NAN, INFINITY};
  const auto wide =
      values_of(read_scores(write("a.npy", npy(float_header("(3, 2)", "<f8"), raw(doubles)))));
  EXPECT_THAT(std::vector(wide.begin(), wide.begin() + 4), ElementsAre(1.5F, -2, 0, 1e30F));
  EXPECT_TRUE(std::isnan(wide[4]));
  EXPECT_EQ(wide[5], INFINITY);
}

TEST_F(ScoreFiles, OtherProgramsHeadersAreRead) {
  for (const char* const header :
       {"{\"shape\":(2,3),\"descr\":\"<f4\",\"fortran_order\":False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }          \n",
        " { 'shape' : ( 2 , 3 , ) , 'fortran_order' : False , 'descr' : '=f4' } "}) {
    EXPECT_THAT(values_of(read_scores(write("a.npy", npy(header, raw(kSix))))),
                ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST_F(ScoreFiles, BigEndianNumbersAreTurned) {
  std::vector<uint32_t> words;
  for (const float x : kSix) words.push_back(__builtin_bswap32(std::bit_cast<uint32_t>(x)));
  EXPECT_THAT(
      values_of(read_scores(write("a.npy", npy(float_header("(3, 2)", ">f4"), raw(words))))),
      ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(ScoreFiles, NoTokensIsAMatrix) {
  const auto none = read_scores(write("a.npy", npy(float_header("(0, 5)"), "")));
  EXPECT_EQ(none.matrix.tokens, 0);
  EXPECT_EQ(none.matrix.experts, 5);
}

TEST_F(ScoreFiles, ATruncatedNumpyFileIsRefusedWhereverItEnds) {
  const std::string whole = npy(float_header("(2, 3)"), raw(kSix));
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string path = write("a.npy", whole.substr(0, size));
    EXPECT_THAT(error_of([&] { read_scores(path); }), HasSubstr(path)) << size;
  }
  const std::string longer = write("a.npy", whole + "x");
  EXPECT_THAT(error_of([&] { read_scores(longer); }), HasSubstr("25 bytes"));
}

TEST_F(ScoreFiles, ANumpyFileWithAnyByteChangedIsReadOrRefused) {
  const std::string whole = npy(float_header("(2, 3)"), raw(kSix));
  for (size_t at = 0; at < whole.size() - 24; ++at) {
    for (const char byte : {'\0', '9', '(', '\'', '\xff', 'L', ' ', '}'}) {
      std::string damaged = whole;
      damaged[at] = byte;
      const std::string path = write("a.npy", damaged);
      try {
        const auto stored = read_scores(path);
        EXPECT_EQ(stored.matrix.tokens * stored.matrix.experts, 6);
      } catch (const UserError& error) {
        EXPECT_THAT(error.what(), HasSubstr(path));
      }
    }
  }
}

TEST_F(ScoreFiles, WhatANumpyFileCannotBeIsNamed) {
  const auto error = [&](const std::string& header) {
    const std::string path = write("a.npy", npy(header, raw(kSix)));
    return error_of([&] { read_scores(path); });
  };
  EXPECT_THAT(error(float_header("(6,)")), HasSubstr("[6]; want two dimensions"));
  EXPECT_THAT(error(float_header("()")), HasSubstr("bytes"));
  EXPECT_THAT(error(float_header("(1, 2, 3)")), HasSubstr("[1, 2, 3]"));
  EXPECT_THAT(error(float_header("(2, 4)")), HasSubstr("24 bytes"));
  EXPECT_THAT(error(float_header("(-2, 3)")), HasSubstr("header"));
  EXPECT_THAT(error(float_header("(4611686018427387904, 4611686018427387904)")),
              HasSubstr("too few"));
  EXPECT_THAT(error(float_header("(99999999999999999999, 3)")), HasSubstr("header"));
  EXPECT_THAT(error(float_header("(2, 3)", "|O")), HasSubstr("'|O'"));
  EXPECT_THAT(error(float_header("(2, 3)", "<c8")), HasSubstr("'<c8'"));
  EXPECT_THAT(error(float_header("(2, 3)", "<f3")), HasSubstr("'<f3'"));
  EXPECT_THAT(error("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (6,)}"),
              HasSubstr("records"));
  EXPECT_THAT(error("{'descr': '<f4', 'shape': (2, 3)}"), HasSubstr("header"));
  EXPECT_THAT(error("{}"), HasSubstr("header"));
  EXPECT_THAT(error(float_header("(2, 3)") + "x"), HasSubstr("header"));
  const std::string version = write("a.npy", npy(float_header("(2, 3)"), raw(kSix), 4));
  EXPECT_THAT(error_of([&] { read_scores(version); }), HasSubstr("version is 4"));
}

TEST_F(ScoreFiles, ADoubleBeyondFp32IsNamed) {
  const std::vector<double> doubles = {1, 2, 3, 1e39, 5, 6};
  const std::string rows = write("a.npy", npy(float_header("(2, 3)", "<f8"), raw(doubles)));
  EXPECT_THAT(error_of([&] { read_scores(rows); }), HasSubstr("token 1 for expert 0, 1e+39"));
  const std::string columns =
      write("b.npy", npy(float_header("(2, 3)", "<f8", "True"), raw(doubles)));
  EXPECT_THAT(error_of([&] { read_scores(columns); }), HasSubstr("token 1 for expert 1, 1e+39"));
}

TEST_F(ScoreFiles, SafetensorsByTheOnlyMatrixOrByName) {
  const std::string path = (folder_ / "a.safetensors").string();
  const std::vector<uint16_t> brain = {0x3f80, 0x4000, 0x4040, 0x4080};
  const std::vector<double> doubles = {1, 2, 3, 4};
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  const checkpoint::TensorView scores{"scores:a", checkpoint::Dtype::kBF16, {2, 2}, bytes(brain)};
  const checkpoint::TensorView list{"list", checkpoint::Dtype::kF64, {4}, bytes(doubles)};
  const checkpoint::TensorView wide{"wide", checkpoint::Dtype::kF64, {4, 1}, bytes(doubles)};
  const checkpoint::TensorView whole{"whole", checkpoint::Dtype::kI64, {2, 2}, bytes(doubles)};
  checkpoint::write_safetensors(path, std::vector{scores, list});
  EXPECT_THAT(values_of(read_scores(path)), ElementsAre(1, 2, 3, 4));
  checkpoint::write_safetensors(path, std::vector{scores, list, wide, whole});
  EXPECT_THAT(error_of([&] { read_scores(path); }),
              AllOf(HasSubstr("3 tensors"), HasSubstr("wide"), HasSubstr("scores:a")));
  EXPECT_THAT(values_of(read_scores(path + ":scores:a")), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(read_scores(path + ":wide").matrix.experts, 1);
  EXPECT_THAT(error_of([&] { read_scores(path + ":list"); }), HasSubstr("F64 [4]"));
  EXPECT_THAT(error_of([&] { read_scores(path + ":whole"); }), HasSubstr("I64 [2, 2]"));
  EXPECT_THAT(error_of([&] { read_scores(path + ":none"); }), HasSubstr("no tensor \"none\""));
  checkpoint::write_safetensors(path, std::vector{list});
  EXPECT_THAT(error_of([&] { read_scores(path); }), HasSubstr("no tensor of two dimensions"));
}

TEST_F(ScoreFiles, TextInTheSeparatorsPeopleUse) {
  for (const char* const text :
       {"1,2,3\n4,5,6\n", "1;2;3\r\n4;5;6\r\n", "1 2 3\n4 5 6", "  1\t2   3 \n\n4\t5\t6\n\n",
        "a,b,c\n1,2,3\n4,5,6\n", "# numpy's savetxt\n1e0 2.0 +3\n4 5 6\n",
        "\xEF\xBB\xBF"
        "1,2,3\n4,5,6\n",
        "1 , 2 , 3\n4 ,5, 6"}) {
    const auto stored = read_scores(write("scores.csv", text));
    EXPECT_EQ(stored.matrix.tokens, 2) << text;
    EXPECT_THAT(values_of(stored), ElementsAre(1, 2, 3, 4, 5, 6)) << text;
  }
  EXPECT_EQ(read_scores(write("one.txt", "7\n8\n")).matrix.experts, 1);
  const auto odd = values_of(read_scores(write("odd.csv", "nan,-inf,1e-400,1e-42\n")));
  EXPECT_TRUE(std::isnan(odd[0]));
  EXPECT_EQ(odd[1], -INFINITY);
  EXPECT_EQ(odd[2], 0);
  EXPECT_EQ(odd[3], 1e-42F);
}

TEST_F(ScoreFiles, ErrorsInTextNameLineAndColumn) {
  EXPECT_THAT(text_error("1,2\n3,x\n"), HasSubstr("scores.csv, line 2, column 2: \"x\""));
  EXPECT_THAT(text_error("a,b\n\n3,\n"), HasSubstr("line 3, column 2: nothing"));
  EXPECT_THAT(text_error(",0,1\n0,2,3\n"), HasSubstr("line 1, column 1: nothing"));
  EXPECT_THAT(text_error("1,2,3\n4,5\n"), HasSubstr("line 2 has 2 numbers, and line 1 has 3"));
  EXPECT_THAT(text_error("1,2\n0x10,2\n"), HasSubstr("\"0x10\""));
  EXPECT_THAT(text_error("1,2\n+-1,2\n"), HasSubstr("\"+-1\""));
  EXPECT_THAT(text_error("1,5;2,5\n"), HasSubstr("holds no numbers"));  // decimal commas
  EXPECT_THAT(text_error("0;1\n1,5;2\n"), HasSubstr("line 2, column 1: \"1,5\""));
  EXPECT_THAT(text_error("1,1e39\n"), HasSubstr("token 0 for expert 1"));
  EXPECT_THAT(text_error("1,1e999\n"), ::testing::Not(HasSubstr("internal")));
  EXPECT_THAT(text_error(""), HasSubstr("holds no numbers"));
  EXPECT_THAT(text_error("a,b\n"), HasSubstr("holds no numbers"));
  EXPECT_THAT(text_error(std::string("1,2\0\n", 5)), HasSubstr("column 2"));
}

TEST_F(ScoreFiles, AFileOfAnotherKindOrNoneIsRefused) {
  const std::string path = write("scores.bin", "1");
  EXPECT_THAT(error_of([&] { read_scores(path); }), HasSubstr(".safetensors"));
  const std::string missing = (folder_ / "missing.npy").string();
  EXPECT_THAT(error_of([&] { read_scores(missing); }), HasSubstr("missing.npy"));
  EXPECT_THAT(error_of([&] { read_scores(folder_.path().string()); }), HasSubstr(".npy"));
  EXPECT_THAT(error_of([&] { read_scores(""); }), HasSubstr(".npy"));
}

TEST_F(ScoreFiles, ListsAreWrittenAndReadBackExactly) {
  const std::vector<int32_t> ids = {3, 0, -1, 2147483647};
  const std::vector<double> prices = {0, 0.1, 1e-300, -3.5, 1.0 / 3};
  for (const char* const name : {"list.npy", "list.csv"}) {
    const fs::path path = folder_ / name;
    write_numbers(path, ids);
    EXPECT_THAT(read_whole_numbers(path), ElementsAre(3, 0, -1, 2147483647));
    write_numbers(path, prices);
    EXPECT_EQ(read_numbers(path), prices);
    write_numbers(path, std::span<const int32_t>());
    EXPECT_TRUE(read_numbers(path).empty());
  }
  EXPECT_THAT(error_of([&] { write_numbers(folder_ / "list.txt", ids); }),
              HasSubstr(".npy or .csv"));
  EXPECT_THAT(error_of([&] { write_numbers(folder_ / "none" / "list.npy", ids); }),
              HasSubstr("none"));
}

TEST_F(ScoreFiles, ListsInAnyForm) {
  EXPECT_THAT(read_numbers(write("row.csv", "1,2,3\n")), ElementsAre(1, 2, 3));
  EXPECT_THAT(read_numbers(write("column.txt", "1\n2\n3\n")), ElementsAre(1, 2, 3));
  EXPECT_THAT(read_numbers(write("a.npy", npy(float_header("(1, 6)"), raw(kSix)))),
              ElementsAre(1, 2, 3, 4, 5, 6));
  const std::vector<uint8_t> mask = {1, 0, 1};
  EXPECT_THAT(read_whole_numbers(write("b.npy", npy(float_header("(3,)", "|b1"), raw(mask)))),
              ElementsAre(1, 0, 1));
  const std::string square = write("square.csv", "1,2\n3,4\n");
  EXPECT_THAT(error_of([&] { read_numbers(square); }), HasSubstr("2 rows of 2"));
  const std::string matrix = write("c.npy", npy(float_header("(2, 3)"), raw(kSix)));
  EXPECT_THAT(error_of([&] { read_numbers(matrix); }), HasSubstr("[2, 3]"));
  const std::string broken = write("broken.csv", "1\n2.5\n");
  EXPECT_THAT(error_of([&] { read_whole_numbers(broken); }), HasSubstr("number 1 is 2.5"));
  const std::string huge = write("huge.csv", "1e300\n");
  EXPECT_THAT(error_of([&] { read_whole_numbers(huge); }), HasSubstr("1e+300"));
}

}  // namespace
}  // namespace ballast::scores
