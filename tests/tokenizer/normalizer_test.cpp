// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include <string>

namespace ballast::tokenizer {
namespace {

std::string normalize(const std::vector<NormalizerStep>& steps, std::string_view text,
                      bool prepends = true) {
  Normalizer::Scratch scratch;
  return std::string(Normalizer(steps).apply(text, prepends, scratch));
}

TEST(Normalizer, ComposesAndDecomposes) {
  EXPECT_EQ(normalize({UnicodeForm::kNfc}, "e\u0301 \u212b \ufb01"), "\u00e9 \u00c5 \ufb01");
  EXPECT_EQ(normalize({UnicodeForm::kNfd}, "\u00e9 \u1e69"), "e\u0301 s\u0323\u0307");
  EXPECT_EQ(normalize({UnicodeForm::kNfkc}, "\ufb01 \u00bd"), "fi 1\u20442");
  EXPECT_EQ(normalize({UnicodeForm::kNfkd}, "\ufb01\u00e9"), "fie\u0301");
  EXPECT_EQ(normalize({UnicodeForm::kNfc}, "s\u0307\u0323x"), "\u1e69x");  // reordered
  EXPECT_EQ(normalize({UnicodeForm::kNfc}, "\u1112\u1161\u11ab\u1100\u1161"), "\ud55c\uac00");
}

TEST(Normalizer, LeavesAloneWhatIsNotUtf8AndWhatIsTooYoung) {
  EXPECT_EQ(normalize({UnicodeForm::kNfc}, "e\xff\u0301\xe4\xb8"), "e\xff\u0301\xe4\xb8");
  EXPECT_EQ(normalize({UnicodeForm::kNfc}, "a\u1df9\u0334"), "a\u1df9\u0334");  // of Unicode 10
  EXPECT_EQ(normalize({UnicodeForm::kNfd}, "\U00011938"), "\U00011938");        // of Unicode 13
}

TEST(Normalizer, GivesTheTextItselfWhereNothingChanges) {
  const Normalizer normalizer({UnicodeForm::kNfc});
  const std::string_view text = "na\u00efve \u6f22\u5b57 \ud55c";
  Normalizer::Scratch scratch;
  EXPECT_EQ(normalizer.apply(text, true, scratch).data(), text.data());
}

TEST(Normalizer, TakesOneStepAfterAnother) {
  const std::vector<NormalizerStep> llama2 = {Prepend{"_"}, Replace{" ", "_"}};
  EXPECT_EQ(normalize(llama2, "a  b "), "_a__b_");
  EXPECT_EQ(normalize(llama2, " a", false), "_a");  // a text that goes on
  EXPECT_EQ(normalize(llama2, ""), "");
  EXPECT_EQ(normalize({Replace{"aa", "b"}, UnicodeForm::kNfc, Replace{"b", ""}}, "aaae\u0301"),
            "a\u00e9");
  EXPECT_TRUE(Normalizer({}).is_empty());
}

// With a table for each it would take minutes and gigabytes.
TEST(Normalizer, ManyStepsOfAFormShareOneTable) {
  const std::vector<NormalizerStep> steps(20'000, UnicodeForm::kNfc);
  EXPECT_EQ(normalize(steps, "e\u0301"), "\u00e9");
}

}  // namespace
}  // namespace ballast::tokenizer
