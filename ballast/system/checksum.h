// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ballast {

// The project's checksum and content hash: XXH3, 64 bits (seed 0). Written as 16 hex digits.
uint64_t checksum(std::span<const std::byte> bytes);
uint64_t checksum(std::string_view text);
std::string checksum_hex(uint64_t value);

// The same value over pieces fed one after another.
class StreamingChecksum {
 public:
  StreamingChecksum();
  ~StreamingChecksum();
  void update(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ballast
