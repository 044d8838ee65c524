// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/not_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ballast/system/utf8.h"

namespace ballast::text {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kNulBytes = "binary (it has NUL bytes)";
constexpr std::string_view kNotUtf8 = "not UTF-8, for the most part";
constexpr std::string_view kUtf16 = "UTF-16 or UTF-32 text";

struct Magic {
  size_t at;
  std::string_view bytes, what;
};

// Formats that people have beside their text. What else is binary has NUL bytes as a rule.
constexpr auto kFormats = std::to_array<Magic>({
    {0, "\x1f\x8b"sv, "gzip"},
    {0, "\x28\xb5\x2f\xfd"sv, "zstd"},
    {0, "\xfd\x37\x7a\x58\x5a\x00"sv, "xz"},
    {0, "\x04\x22\x4d\x18"sv, "lz4"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    {0, "Rar!\x1a\x07"sv, "a RAR archive"},
    {0, "PK\x03\x04"sv, "zip (an archive, an office document, or PyTorch's)"},
    {0, "PK\x05\x06"sv, "zip (an archive, an office document, or PyTorch's)"},
    {257, "ustar"sv, "a tar archive"},
    {0, "%PDF-"sv, "a PDF"},
    {0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, "an office document"},
    {0, "\x89PNG"sv, "a PNG image"},
    {0, "\xff\xd8\xff"sv, "a JPEG image"},
    {0, "GIF87a"sv, "a GIF image"},
    {0, "GIF89a"sv, "a GIF image"},
    {0, "II*\0"sv, "a TIFF image"},
    {0, "MM\0*"sv, "a TIFF image"},
    {8, "WEBP"sv, "a WebP image"},
    {0, "OggS"sv, "Ogg audio"},
    {0, "fLaC"sv, "FLAC audio"},
    {0, "ID3\x03"sv, "MP3 audio"},
    {0, "ID3\x04"sv, "MP3 audio"},
    {4, "ftyp"sv, "MP4 video"},
    {0, "\x80\x02"sv, "a pickle"},
    {0, "\x80\x03"sv, "a pickle"},
    {0, "\x80\x04\x95"sv, "a pickle"},
    {0, "\x80\x05\x95"sv, "a pickle"},
    {0, "\x93NUMPY"sv, "a NumPy array"},
    {0, "\x89HDF\r\n\x1a\n"sv, "HDF5"},
    {0, "PAR1"sv, "Parquet"},
    {0, "ARROW1\0\0"sv, "Arrow"},
    {0, "GGUF"sv, "GGUF"},
    {0, "BLSTTOK\0"sv, "a token shard of `ballast prepare`"},
    {0, "SQLite format 3\0"sv, "an SQLite database"},
    {0, "\x7f\x45LF"sv, "a program or library (ELF)"},
    {0, "\xff\xfe"sv, kUtf16},
    {0, "\xfe\xff"sv, kUtf16},
});

// A header's length as u64, then the header: a JSON object.
bool starts_like_safetensors(std::string_view head) {
  return head.size() > 9 && head.substr(4, 4) == "\0\0\0\0"sv && head.substr(8, 2) == "{\"";
}

bool is_mostly_not_utf8(std::string_view head) {
  // What replaces a bad byte has three. Bytes of a character that the head cuts off are few.
  const std::string mended = replace_invalid_utf8(head);
  const size_t bad = (mended.size() - head.size()) / 2;
  return bad > 3 && bad * 10 > head.size();
}

}  // namespace

std::string reason_not_text(std::string_view head) {
  const auto magic = std::ranges::find_if(kFormats, [&](const Magic& known) {
    return head.size() > known.at && head.substr(known.at).starts_with(known.bytes);
  });
  if (magic != kFormats.end()) return std::string(magic->what);
  if (head.starts_with("BZh") && head.substr(4, 6) == "1AY&SY") return "bzip2";
  if (starts_like_safetensors(head)) return "safetensors";
  if (head.find('\0') != head.npos) return std::string(kNulBytes);
  return is_mostly_not_utf8(head) ? std::string(kNotUtf8) : "";
}

std::string_view cure_for_not_text(std::string_view reason) {
  if (reason == kNotUtf8 || reason == kUtf16)
    return "convert it, as in `iconv -f ENCODING -t UTF-8 FILE`";
  if (reason == "Parquet") return "give it as a file of its own, not compressed or piped";
  return "extract its text, or pipe that in as `-`";
}

}  // namespace ballast::text
