// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/wikitext.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast::inference {
namespace {

using testing::ElementsAre;

TEST(Wikitext, ATitleBeginsAPage) {
  EXPECT_THAT(
      wikitext_pages(" \n = One = \n \n text . \n = = Part = = \n more \n = Two = \n end \n"),
      ElementsAre(" = One = \n \n text . \n = = Part = = \n more ", " = Two = \n end \n"));
  EXPECT_THAT(wikitext_pages("no title \n at all"), ElementsAre("no title \n at all"));
  EXPECT_THAT(wikitext_pages(" = = = Deep = = = \nx"), ElementsAre(" = = = Deep = = = \nx"));
  EXPECT_TRUE(wikitext_pages(" \n \n").empty());
}

// What lm-eval's task makes of the same texts.
TEST(Wikitext, TextIsWrittenAsPeopleWriteIt) {
  const std::pair<const char*, const char*> cases[] = {
      {"a guest @-@ starring role of 1 @,@ 000 @.@ 5 .", "a guest-starring role of 1,000.5 ."},
      {"one , two ; three : four . five ! six ? seven", "one, two; three: four. five! six? seven"},
      {"a ( b ) [ c ] { d } \" e \" f", "a (b) [c] {d} \"e\" f"},
      {"( open and \" one", "( open and \" one"},
      {"the boys ' toys and Teddy 's Story", "the boys'toys and Teddy's Story"},
      {" = = Part = = \n text \n", " == Part ==\ntext\n"},
      {"5 \xc2\xb0 C in N weeks",
       "5\xc2\xb0"
       "C in 1 weeks"},
  };
  for (const auto& [given, wanted] : cases) EXPECT_EQ(wikitext_detokenized(given), wanted);
}

}  // namespace
}  // namespace ballast::inference
