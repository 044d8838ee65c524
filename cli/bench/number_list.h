// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ballast::cli {

// What an option of several numbers looks like: {"--size", "tokens,width"}.
struct NumberList {
  std::string option, names;  // names: separated by commas
  size_t fewest = 0;          // numbers that must be there; 0: as many as names
};

// "4096,256" as {4096, 256}. UserError names the option, its numbers and what was given.
std::vector<int64_t> parse_numbers(const NumberList& wanted, const std::string& text);

}  // namespace ballast::cli
