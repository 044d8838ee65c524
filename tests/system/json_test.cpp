// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace ballast {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string nested(size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(ParseJson, ReadsWhatIsValid) {
  EXPECT_EQ(parse_json(R"({"a": [1, 2.5, null], "b": {"a": "c"}})")["b"]["a"], "c");
  EXPECT_NO_THROW(parse_json(nested(64)));
}

TEST(ParseJson, ADeepTextIsRefusedWhateverItNests) {
  std::string objects;
  for (int i = 0; i < 1000000; ++i) objects += "{\"a\":";
  for (const std::string& text : {nested(65), nested(1000000), std::string(1000000, '['), objects})
    EXPECT_THAT([&] { parse_json(text); }, ThrowsMessage<BadJson>(HasSubstr("too deep")));
  EXPECT_THAT([&] { parse_json(nested(65), RepeatedKeys::kLastCounts); },
              ThrowsMessage<BadJson>(HasSubstr("too deep")));
}

TEST(ParseJson, DamageAndRepeatedKeysAreRefused) {
  EXPECT_THAT([] { parse_json(""); }, ThrowsMessage<BadJson>(HasSubstr("damaged at byte")));
  EXPECT_THAT([] { parse_json("{\"a\": 1} x"); }, ThrowsMessage<BadJson>(HasSubstr("byte 10")));
  const std::string repeated = R"({"a": 1, "a": 2})";
  EXPECT_THAT([&] { parse_json(repeated); }, ThrowsMessage<BadJson>(HasSubstr("'a' twice")));
  EXPECT_EQ(parse_json(repeated, RepeatedKeys::kLastCounts)["a"], 2);
}

TEST(ParseJson, WhatIsRefusedCanBeDiscarded) {
  EXPECT_TRUE(parse_json_or_discard(nested(1000000)).is_discarded());
  EXPECT_TRUE(parse_json_or_discard("{").is_discarded());
  EXPECT_EQ(parse_json_or_discard("[1]").at(0), 1);
}

}  // namespace
}  // namespace ballast
