// SPDX-License-Identifier: Apache-2.0
#include "ballast/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/system/random.h"
#include "tests/support/temporary_folder.h"

namespace ballast::checkpoint {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes counting_bytes(size_t size, uint8_t start = 0) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(start + i);
  return bytes;
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// A file with a header as given, then `data_size` bytes.
void write_raw(const fs::path& path, const std::string& header, size_t data_size) {
  const uint64_t length = header.size();
  OutputFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  file.write(std::string(data_size, 'x'));
  file.finish();
}

std::string error_of(const fs::path& path) {
  try {
    const SafetensorsFile file(path);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Safetensors, RoundTripsEveryDtypeShapeAndName) {
  const test::TemporaryFolder folder;
  std::vector<Bytes> memory;
  std::vector<TensorView> tensors;
  memory.reserve(100);
  const auto add = [&](std::string name, Dtype dtype, std::vector<int64_t> shape) {
    const auto count = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    memory.push_back(counting_bytes(static_cast<size_t>(count) * dtype_size(dtype),
                                    static_cast<uint8_t>(tensors.size())));
    tensors.push_back({std::move(name), dtype, std::move(shape), memory.back()});
  };
  for (int i = 0; i <= static_cast<int>(Dtype::kU64); ++i) {
    add("dtype " + std::to_string(i), static_cast<Dtype>(i), {3, 5});
  }
  add("scalar", Dtype::kF32, {});
  add("empty", Dtype::kF32, {4, 0, 7});
  add("layer.6.expert.17.weight", Dtype::kF32, {1, 2, 3});
  add("quote \" backslash \\ newline \n", Dtype::kU8, {1});
  add("größe 😀", Dtype::kU8, {1});
  add("", Dtype::kU8, {1});
  const SafetensorsMetadata metadata = {{"format", "pt"}, {"text", "line\n\"quoted\" é"}};
  write_safetensors(folder / "a.safetensors", tensors, metadata);

  const SafetensorsFile file(folder / "a.safetensors");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const TensorView& wanted : tensors) {
    const TensorView* got = file.find(wanted.name);
    ASSERT_NE(got, nullptr) << wanted.name;
    EXPECT_EQ(got->dtype, wanted.dtype) << wanted.name;
    EXPECT_EQ(got->shape, wanted.shape) << wanted.name;
    EXPECT_TRUE(same_bytes(got->data, wanted.data)) << wanted.name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got->data.data()) % dtype_size(got->dtype), 0U)
        << wanted.name;
  }
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(Safetensors, ViewsOutliveAMove) {
  const test::TemporaryFolder folder;
  const Bytes data = counting_bytes(4);
  write_safetensors(folder / "a", std::vector<TensorView>{{"w", Dtype::kU8, {4}, data}});
  SafetensorsFile file(folder / "a");
  const TensorView view = *file.find("w");
  const SafetensorsFile moved = std::move(file);
  EXPECT_TRUE(same_bytes(view.data, data));
  EXPECT_TRUE(same_bytes(moved.find("w")->data, data));
}

TEST(Safetensors, BytesDoNotDependOnTheOrderGiven) {
  const test::TemporaryFolder folder;
  const Bytes data = counting_bytes(8);
  const TensorView a{"a", Dtype::kU8, {8}, data}, b{"b", Dtype::kF64, {1}, data},
      c{"c", Dtype::kF64, {1}, data};
  write_safetensors(folder / "1", std::vector{a, b, c});
  write_safetensors(folder / "2", std::vector{c, b, a});
  EXPECT_EQ(read_text(folder / "1"), read_text(folder / "2"));
}

TEST(Safetensors, AFileWithoutTensorsIsValid) {
  const test::TemporaryFolder folder;
  write_safetensors(folder / "none", {});
  EXPECT_EQ(read_text(folder / "none"), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_TRUE(SafetensorsFile(folder / "none").tensors().empty());
}

TEST(Safetensors, ReadsLayoutsThatOthersWrite) {
  const test::TemporaryFolder folder;
  // No padding (so unaligned data), JSON in another order than the bytes, spaces, a field of
  // theirs.
  write_raw(folder / "a",
            R"({"z": {"dtype":"F32","shape":[2],"data_offsets":[1,9],"note":1},)"
            R"("a": {"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
            9);
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.find("z")->data.size(), 8U);
  EXPECT_EQ(file.tensors()[0].name, "a");
}

TEST(Safetensors, WritingRefusesNonsense) {
  const test::TemporaryFolder folder;
  const Bytes data = counting_bytes(8);
  const auto write = [&](std::vector<TensorView> tensors) {
    write_safetensors(folder / "a", tensors);
  };
  EXPECT_THROW(write({{"w", Dtype::kF32, {3}, data}}), std::invalid_argument);
  EXPECT_THROW(write({{"w", Dtype::kF32, {-2}, data}}), std::invalid_argument);
  EXPECT_THROW(write({{"w", Dtype::kF32, {2}, data}, {"w", Dtype::kU8, {8}, data}}),
               std::invalid_argument);
  EXPECT_THROW(write({{"__metadata__", Dtype::kF32, {2}, data}}), std::invalid_argument);
  EXPECT_FALSE(fs::exists(folder / "a"));
  EXPECT_THROW(write_safetensors(folder / "no" / "such" / "folder", {}), UserError);
}

struct BadFile {
  std::string header;
  std::string reason;
};

TEST(Safetensors, RefusesEveryKindOfMalformedHeader) {
  const auto entry = [](const std::string& name, const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
           R"(,"data_offsets":)" + offsets + "}";
  };
  const auto one = [&](const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
    return "{" + entry("w", dtype, shape, offsets) + "}";
  };
  const std::vector<BadFile> cases = {
      // each over 8 bytes of data
      {"", "does not start with '{'"},
      {"[]", "does not start with '{'"},
      {" {}", "does not start with '{'"},
      {"{", "damaged at byte"},
      {"{}x", "damaged at byte"},
      {"{\"\xff\":{}}", "damaged at byte"},
      {"{}", "8 bytes after the last tensor"},
      {R"({"w":3})", "not a JSON object"},
      {R"({"__metadata__":{"a":1}})", "metadata 'a' is not a string"},
      {R"({"__metadata__":"text"})", "not a JSON object"},
      {R"({"w":{}})", "no dtype"},
      {one("F31", "[2]", "[0,8]"), "no dtype we know"},
      {one("F4", "[16]", "[0,8]"), "no dtype we know"},
      {R"({"w":{"dtype":"F32","data_offsets":[0,8]}})", "no valid shape"},
      {one("F32", "2", "[0,8]"), "no valid shape"},
      {one("F32", "[-2]", "[0,8]"), "no valid shape"},
      {one("F32", "[2.0]", "[0,8]"), "no valid shape"},
      {one("U8", "[9223372036854775808]", "[0,8]"), "no valid shape"},
      {one("U8", "[99999999999999999999999]", "[0,8]"), "no valid shape"},
      {R"({"w":{"dtype":"F32","shape":[2]}})", "no valid data_offsets"},
      {one("F32", "[2]", "[0]"), "no valid data_offsets"},
      {one("F32", "[2]", "[0,8,8]"), "no valid data_offsets"},
      {one("F32", "[2]", "[8,0]"), "no valid data_offsets"},
      {one("F32", "[2]", "[-8,0]"), "no valid data_offsets"},
      {one("F32", "[2]", R"(["0","8"])"), "no valid data_offsets"},
      {one("F32", "[3]", "[0,12]"), "cut short"},
      {one("U8", "[8]", "[18446744073709551608,18446744073709551615]"), "cut short"},
      {one("F32", "[3]", "[0,8]"), "does not fit F32 [3]"},
      {one("F32", "[4611686018427387905]", "[0,4]"), "does not fit"},      // overflow
      {one("U8", "[4294967296,4294967296]", "[0,0]"), "does not fit"},     // overflow
      {one("U8", "[0,4294967296,4294967296]", "[0,0]"), "8 bytes after"},  // no overflow
      {one("U8", "[7]", "[1,8]"), "a hole before tensor 'w'"},
      {one("U8", "[7]", "[0,7]"), "1 bytes after the last tensor"},
      {"{" + entry("a", "U8", "[5]", "[0,5]") + "," + entry("b", "U8", "[4]", "[4,8]") + "}",
       "tensor 'b' overlaps"},
      {"{" + entry("a", "U8", "[8]", "[0,8]") + "," + entry("b", "U8", "[8]", "[0,8]") + "}",
       "overlaps"},
      {"{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("a", "U8", "[4]", "[4,8]") + "}",
       "the key 'a' twice"},
      {R"({"w":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})", "'dtype' twice"},
      {R"({"__metadata__":{"n":1e999}})", "number out of range"},
      {"{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}", "nests too deep"},
  };
  const test::TemporaryFolder folder;
  const auto path = folder / "bad.safetensors";
  for (const BadFile& bad : cases) {
    write_raw(path, bad.header, 8);
    EXPECT_THAT(error_of(path), HasSubstr(bad.reason)) << bad.header.substr(0, 100);
    EXPECT_THAT(error_of(path), HasSubstr(path.string()));
  }
}

TEST(Safetensors, RefusesMissingEmptyAndBadlySizedFiles) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(error_of(folder / "missing"), HasSubstr("missing"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("directory"));
  write_text_atomically(folder / "empty", "");
  EXPECT_THAT(error_of(folder / "empty"), HasSubstr("is empty"));
  write_text_atomically(folder / "huge", "\xff\xff\xff\xff\xff\xff\xff\xff{}");
  EXPECT_THAT(error_of(folder / "huge"), HasSubstr("more than the format allows"));
  write_text_atomically(folder / "long", std::string("\x09\0\0\0\0\0\0\0{}      ", 16));
  EXPECT_THAT(error_of(folder / "long"), HasSubstr("cut short"));
}

std::string small_valid_file(const fs::path& path) {
  const Bytes data = counting_bytes(24);
  const std::span all(data);
  const std::vector<TensorView> tensors = {{"layer.0.weight", Dtype::kF32, {2, 3}, all},
                                           {"layer.0.bias", Dtype::kBF16, {3}, all.first(6)},
                                           {"mask", Dtype::kBool, {5}, all.first(5)}};
  write_safetensors(path, tensors, {{"format", "pt"}});
  return read_text(path);
}

void write_plain(const fs::path& path, std::string_view text) {
  fs::remove(path);  // some file systems sync a file that is truncated and rewritten
  std::ofstream(path, std::ios::binary) << text;
}

TEST(Safetensors, RefusesTruncationAtEveryLength) {
  const test::TemporaryFolder folder;
  const std::string whole = small_valid_file(folder / "whole");
  for (size_t length = 0; length < whole.size(); ++length) {
    write_plain(folder / "cut", whole.substr(0, length));
    EXPECT_THAT(error_of(folder / "cut"), HasSubstr("not a valid safetensors file")) << length;
  }
}

TEST(Safetensors, SurvivesRandomByteChanges) {
  const test::TemporaryFolder folder;
  const std::string whole = small_valid_file(folder / "whole");
  RandomStream random(1, "flip");
  int accepted = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string changed = whole;
    const uint64_t changes = 1 + random.below(3);
    for (uint64_t i = 0; i < changes; ++i) {
      changed[random.below(changed.size())] = static_cast<char>(random.below(256));
    }
    const auto path = folder / "changed";
    write_plain(path, changed);
    try {
      const SafetensorsFile file(path);
      ++accepted;
      size_t bytes = 0;
      for (const TensorView& tensor : file.tensors()) {
        for (const std::byte value : tensor.data) bytes += value >= std::byte{0};  // touch each
      }
      EXPECT_LT(bytes, changed.size());
    } catch (const UserError&) {
    }
  }
  EXPECT_GT(accepted, 100);  // changes in the data or in a name are not for this reader to find
}

}  // namespace
}  // namespace ballast::checkpoint
