// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace ballast {

uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

uint64_t checksum(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::string checksum_hex(uint64_t value) { return fmt::format("{:016x}", value); }

struct StreamingChecksum::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

StreamingChecksum::StreamingChecksum() : state_(std::make_unique<State>()) {}
StreamingChecksum::~StreamingChecksum() = default;

void StreamingChecksum::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t StreamingChecksum::value() const { return XXH3_64bits_digest(state_->xxh); }

}  // namespace ballast
