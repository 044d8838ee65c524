// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/system/random.h"
#include "tests/checkpoint/sample_checkpoint.h"

namespace ballast::checkpoint {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

Manifest full_manifest() {
  Manifest manifest = test::sample_manifest(1234);
  manifest.tensors = {
      {"layer.6.expert.17.up", "experts.safetensors", Dtype::kBF16, {4, 8}, 0x0123456789abcdefU},
      {"scalar \"quoted\"", "shared.safetensors", Dtype::kF32, {}, 0},
      {"empty", "shared.safetensors", Dtype::kI64, {0, 3}, ~uint64_t{0}}};
  return manifest;
}

std::string error_of(std::string_view text) {
  try {
    parse_manifest(text, "the/manifest.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

// The text with `from` replaced and the checksum made to fit again: a valid file by someone else.
std::string forged(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  const std::string key = "\"checksum\": \"";
  const size_t digits = text.find(key) + key.size();
  text.replace(digits, 16, std::string(16, '0'));
  return text.replace(digits, 16, checksum_hex(checksum(text)));
}

TEST(Manifest, RoundTrips) {
  const Manifest manifest = full_manifest();
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "x"), manifest);
  const Manifest nothing;
  EXPECT_EQ(parse_manifest(manifest_text(nothing), "x"), nothing);
}

TEST(Manifest, EntriesRoundTripAsText) {
  const auto entries = full_manifest().tensors;
  EXPECT_EQ(parse_entries(entries_text(entries)), entries);
  EXPECT_TRUE(parse_entries(entries_text({})).empty());
}

TEST(Manifest, StateKeepsEveryDouble) {
  Manifest manifest;
  manifest.state = R"({"x":0.1,"y":1.7976931348623157e+308,"z":5e-324})";
  EXPECT_EQ(parse_manifest(manifest_text(manifest), "x").state, manifest.state);
}

TEST(Manifest, TextRefusesNonsense) {
  Manifest twice = full_manifest();
  twice.tensors.push_back(twice.tensors[0]);
  EXPECT_THROW(manifest_text(twice), std::invalid_argument);
  Manifest list;
  list.state = "[1]";
  EXPECT_THROW(manifest_text(list), std::invalid_argument);
}

TEST(Manifest, RefusesTruncationAtEveryLength) {
  const std::string text = manifest_text(full_manifest());
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_THAT(error_of(text.substr(0, length)), HasSubstr("the/manifest.json is")) << length;
  }
}

TEST(Manifest, RefusesAnyChangedByte) {
  const std::string text = manifest_text(full_manifest());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const char value : {'\0', ' ', '"', '1', '9', 'a', '}', '\xff'}) {
      if (text[i] == value) continue;
      std::string changed = text;
      changed[i] = value;
      EXPECT_THAT(error_of(changed), HasSubstr("the/manifest.json is")) << i << " " << value;
    }
  }
}

TEST(Manifest, SurvivesRandomChangesWithAFittingChecksum) {
  const std::string text = manifest_text(full_manifest());
  RandomStream random(1, "flip");
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::string from(1, text[random.below(text.size())]);
    const std::string to(1, static_cast<char>(random.below(256)));
    accepted += error_of(forged(text, from, to)) == "accepted";
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 5000);
}

TEST(Manifest, SaysWhatIsWrong) {
  const std::string text = manifest_text(full_manifest());
  EXPECT_THAT(error_of(forged(text, "\"version\": 1", "\"version\": 2")),
              AllOf(HasSubstr("format version 2"), HasSubstr("use a newer ballast")));
  EXPECT_THAT(error_of(forged(text, "ballast-checkpoint", "something-else")),
              HasSubstr("not the manifest of a checkpoint"));
  EXPECT_THAT(error_of(forged(text, "\"step\": 1234", "\"step\": -1")),
              HasSubstr("step is not a count"));
  EXPECT_THAT(error_of(forged(text, "\"step\"", "\"stop\"")), HasSubstr("a field is missing"));
  EXPECT_THAT(error_of(forged(text, "\"empty\"", "\"layer.6.expert.17.up\"")),
              HasSubstr("two tensors named layer.6.expert.17.up"));
  EXPECT_THAT(error_of(forged(text, "BF16", "BF17")), HasSubstr("unknown dtype"));
  EXPECT_THAT(error_of(forged(text, "0123456789abcdef", "0123456789ABCDEF")),
              HasSubstr("not a checksum"));
  EXPECT_THAT(error_of(forged(text, "\"step\"", "\"state\": {}, \"step\"")),
              HasSubstr("'state' twice"));
  EXPECT_THAT(error_of("{}"), HasSubstr("not the manifest"));
  EXPECT_THAT(error_of("[]"), HasSubstr("not the manifest"));
  EXPECT_THAT(error_of(""), HasSubstr("corrupt"));
}

// Seen while fuzzing: the number was cast to a whole one that cannot hold it.
TEST(Manifest, AShapeIsAListOfWholeNumbers) {
  const std::string text = manifest_text(full_manifest());
  for (const char* shape : {"[4,1e300]", "[4,8.5]", "{\"a\":4}", "null", "4"})
    EXPECT_THAT(error_of(forged(text, "[4,8]", shape)), HasSubstr("shape")) << shape;
}

TEST(Manifest, TellsOfTheDataWhereItIsKept) {
  Manifest manifest = full_manifest();
  manifest.data = {{"train", "größe \"a\"", "3 tokens, fingerprint 0"}, {"tokenizer", "b", "c"}};
  const std::string text = manifest_text(manifest);
  EXPECT_EQ(parse_manifest(text, "x"), manifest);
  EXPECT_EQ(manifest_text(full_manifest()).find("\"data\":"), std::string::npos);
  EXPECT_THAT(error_of(forged(text, "\"role\":\"train\"", "\"role\":1")), HasSubstr("corrupt"));
  EXPECT_THAT(error_of(forged(text, "\"role\":\"train\",", "")), HasSubstr("corrupt"));
}

}  // namespace
}  // namespace ballast::checkpoint
