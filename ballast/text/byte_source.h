// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace ballast::text {

// The bytes of one input from start to end, decompressed where they are gzip (any number of
// members) or zstd (any number of frames), in bounded memory. Throws UserError naming the file, and
// for damaged data the offset in the compressed file.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `buffer` from its start; returns fewer bytes than it holds only at the end of the input.
  virtual size_t read(std::span<char> buffer) = 0;
  // Bytes of the file itself (compressed ones where it is) that were needed so far.
  virtual uint64_t bytes_consumed() const = 0;
};

// A file, a pipe, or "-" for standard input. gzip and zstd are known by their first bytes, whatever
// the name; a name that ends in .gz or .zst with other content is refused, and so is standard input
// or a pipe that is not text.
std::unique_ptr<ByteSource> open_byte_source(const std::filesystem::path& path);

}  // namespace ballast::text
