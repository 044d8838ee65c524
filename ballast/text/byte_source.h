// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ballast::text {

// The bytes of one input from start to end, decompressed where they are zstd (any number of
// frames). Throws UserError naming the file, and for damaged zstd data the offset in the compressed
// file.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `buffer` from its start; returns fewer bytes than it holds only at the end of the input.
  virtual size_t read(std::span<char> buffer) = 0;
  // Bytes of the file itself (compressed ones for zstd) that were needed so far.
  virtual uint64_t bytes_consumed() const = 0;
};

// A file, a pipe, or "-" for standard input. zstd is known by its first bytes, whatever the name; a
// name that ends in .zst with other content is refused, and so is standard input or a pipe in
// another compressed format.
std::unique_ptr<ByteSource> open_byte_source(const std::filesystem::path& path);

// What keeps `head`, the first bytes of a content, from being text: the name of a compressed or
// document format ("gzip", "PDF", ...), "NUL bytes", or empty if it is text.
std::string_view reason_not_text(std::string_view head);

}  // namespace ballast::text
