// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/toml_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ballast/config/config.h"
#include "ballast/system/error.h"
#include "tests/support/error_of.h"

namespace ballast::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string error_of_text(const std::string& text) {
  Config config;
  return test::error_of([&] { read_config_text(config, text, "x.toml"); });
}

TEST(TomlBounds, DeepTextIsRefusedWithItsLine) {
  constexpr int kMany = 200000;
  // As strings: GCC 12 takes "a" + a temporary one for a copy onto itself.
  for (const std::string& deep :
       {std::string("a") + repeated(".a", kMany) + " = 1",
        std::string("[a") + repeated(" . a", kMany) + "]",
        std::string("a = ") + repeated("[", kMany), std::string("a = ") + repeated("{a = ", kMany),
        std::string("a = ") + repeated("[\n", 100), repeated("'a'.", kMany) + "a = 1"}) {
    EXPECT_THAT(error_of_text("[model]\n" + deep),
                AllOf(HasSubstr("x.toml, line "), HasSubstr("nests deeper than 16 levels")));
  }
  EXPECT_THAT(error_of_text("# one\n\na = '''\n'''\nb = " + repeated("[", 17)),
              HasSubstr("line 5: it nests deeper"));
}

TEST(TomlBounds, NoStringHidesWhatComesAfterIt) {
  const std::string deep = repeated("[", 100);
  const std::vector<std::string> before = {
      R"("\"")",      R"("\\")",   R"('\')",    R"("""a"b""c\"""")", R"("""a""""")",
      R"('''a''''')", "'''a\n'''", R"("# no")", "# a \" comment\n1", R"("""a"""")"};
  for (const std::string& text : before)
    EXPECT_THAT(error_of_text("a = [" + text + ", " + deep), HasSubstr("nests deeper")) << text;
}

TEST(TomlBounds, WhatIsInStringsAndCommentsDoesNotCount) {
  const std::string deep = repeated("[.", 100);
  for (const std::string& text : {"'" + deep + "'", R"("\")" + deep + R"(")",
                                  "''' '" + deep + "\n'''", R"(""" "")" + deep + R"(""")"}) {
    Config config;
    read_config_text(config, "[training]\nsample_prompt = " + text + "# " + deep + "\n", "x.toml");
    EXPECT_THAT(config.training.sample_prompt, HasSubstr(deep));
  }
  EXPECT_NO_THROW(check_toml_bounds("a = [" + repeated("0.5, ", 1000) + "]", "x.toml"));
}

}  // namespace
}  // namespace ballast::config
