// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>

namespace ballast {

// A mapped file that becomes shorter, or whose disk fails, is found out by SIGBUS when it is read.
// From now on such a read ends the program with `exit_code` and a line on stderr that names the
// file. For the program; once.
void explain_lost_mappings(int exit_code);

// Which file lies at [data, data + size), for that line. Any thread. A mapping that is remembered
// must be forgotten before it goes.
void remember_mapping(const void* data, size_t size, const std::filesystem::path& path);
void forget_mapping(const void* data);

}  // namespace ballast
