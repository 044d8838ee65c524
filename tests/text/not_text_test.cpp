// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/not_text.h"

#include <gtest/gtest.h>

#include "ballast/system/random.h"

namespace ballast::text {
namespace {

using namespace std::string_literals;

TEST(NotText, TextIsText) {
  for (const std::string& text :
       {"plain"s, ""s, "\n"s, "{\"text\": \"json\"}"s, "Grüße, 你好, привет, 👋"s, "PK is a name"s,
        "\xef\xbb\xbfwith a mark"s, "tab\tand\x1b[1mescape"s, "GIFs are images"s,
        "II* is not TIFF"s, std::string(4096, 'x')}) {
    EXPECT_EQ(reason_not_text(text), "") << text;
  }
}

TEST(NotText, WellKnownFormatsAreNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"%PDF-1.7\n1 0 obj", "PDF"},
      {"PK\x03\x04 rest", "zip"},
      {"\x89PNG\r\n\x1a\n", "PNG"},
      {"\xff\xd8\xff\xe0 rest", "JPEG"},
      {"GIF89a rest", "GIF"},
      {"\x80\x04\x95\x1a\0\0\0"s, "pickle"},
      {"\x80\x02}q\0."s, "pickle"},
      {"\x40\0\0\0\0\0\0\0{\"weight\":{\"dtype\""s, "safetensors"},
      {"PAR1 rest", "Parquet"},
      {"\x93NUMPY\x01\0"s, "NumPy"},
      {"\x7f"
       "ELF\x02",
       "ELF"},
      {"\x1f\x8b\x08", "gzip"},
      {"BZh91AY&SY", "bzip2"},
      {"BLSTTOK\0"s, "token shard"},
      {std::string(257, 'a') + "ustar", "tar"},
      {"\xff\xfeh\0i\0"s, "UTF-16"},
      {"SQLite format 3\0"s, "SQLite"},
  };
  for (const auto& [head, name] : cases) {
    EXPECT_NE(reason_not_text(head).find(name), std::string::npos)
        << name << " was found to be: " << reason_not_text(head);
  }
}

TEST(NotText, NulBytesAreBinary) {
  EXPECT_NE(reason_not_text("text\0text"s).find("NUL"), std::string::npos);
}

// A few bytes that are not UTF-8 do not make a text binary: so is French in Latin-1.
TEST(NotText, MostlyInvalidUtf8IsNotText) {
  const std::string french =
      "La c\xe9r\xe9monie d'hier \xe0 Paris a commenc\xe9 avec les discours ";
  EXPECT_EQ(reason_not_text(french + french + french), "");
  const std::string russian = "\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0";  // Windows-1251
  EXPECT_NE(reason_not_text(russian + russian).find("UTF-8"), std::string::npos);
  RandomStream random(1, "test/not_text");
  std::string noise;
  while (noise.size() < 4096) {
    const auto byte = static_cast<char>(random.below(256));
    if (byte != 0) noise += byte;
  }
  EXPECT_NE(reason_not_text("x" + noise).find("UTF-8"), std::string::npos);
}

TEST(NotText, ACharacterThatTheHeadCutsOffIsNoFault) {
  const std::string text = "\xf0\x9f\x91\x8b";
  for (size_t cut = 1; cut < 4; ++cut) EXPECT_EQ(reason_not_text(text.substr(0, cut)), "");
}

}  // namespace
}  // namespace ballast::text
