// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ballast::record {

struct CpuInfo {
  std::string model;                          // "unknown" where the system does not say
  std::vector<std::string> instruction_sets;  // those that matter for speed here, by Linux' names
};

// Reads the text of /proc/cpuinfo (x86 or ARM).
CpuInfo parse_cpuinfo(std::string_view text);

// This machine, as far as the operating system tells: keys hostname, os, kernel, architecture, cpu,
// cores (this process may use), cores_total, instruction_sets, memory_bytes (all of it, or what
// a container may use), memory_available_bytes. What cannot be found out is null or "unknown".
nlohmann::json describe_hardware();

}  // namespace ballast::record
