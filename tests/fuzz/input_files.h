// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/system/error.h"

namespace ballast::fuzz {

// An input is the bytes of one file, or of several with this line between them.
inline constexpr std::string_view kCut = "\n--- next file ---\n";

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The files that an input stands for. One that it lacks is empty, what is too much belongs to the
// last.
std::vector<std::string_view> files_of(std::string_view input, size_t count);

// A folder for this process alone, for readers that want files.
const std::filesystem::path& scratch_folder();
// Writes a file of that folder over what it had, and returns its path.
std::filesystem::path write_file(const std::string& name, std::string_view bytes);

// Calls a reader. A UserError is an answer as good as any; whatever else it throws is a finding.
template <typename Read>
void expect_answer(Read read) {
  try {
    read();
  } catch (const UserError&) {
  }
}

// Ends the process where a reader broke a promise, which is a finding too.
void require(bool kept, const char* promise);

}  // namespace ballast::fuzz
