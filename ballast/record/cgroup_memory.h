// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace ballast::record {

// The bytes that this process may use at most, by its control groups (versions 1 and 2) and those
// above them: what a container, a Slurm job or a systemd service has. Nothing: no limit is known.
// `root` is where /proc and /sys are.
std::optional<uint64_t> cgroup_memory_limit(const std::filesystem::path& root = "/");

}  // namespace ballast::record
