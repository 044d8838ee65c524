// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/hardware.h"

#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "ballast/record/cgroup_memory.h"
#include "ballast/system/parallel.h"

namespace ballast::record {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 18> kInstructionSets = {
    "sse4_2",   "avx",      "f16c",        "fma",         "avx2",        "avx_vnni",
    "avx512f",  "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
    "amx_bf16", "amx_int8", "asimd",       "asimddp",     "bf16",        "sve",
};

// Files in /proc have no size and cannot be mapped. Missing: an empty text.
std::string read_system_text(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\"");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\"\n") - first + 1);
}

// The value in the first line "key<separator>value", or an empty text.
std::string_view value_of(std::string_view text, std::string_view key, char separator) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const size_t middle = line.find(separator);
    if (middle != line.npos && trimmed(line.substr(0, middle)) == key) {
      return trimmed(line.substr(middle + 1));
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return {};
}

std::optional<uint64_t> leading_number(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return {};
  return number;
}

std::optional<uint64_t> memory_of(std::string_view meminfo, std::string_view key) {
  const auto kilobytes = leading_number(value_of(meminfo, key, ':'));
  return kilobytes ? std::optional(*kilobytes * 1024) : std::nullopt;
}

std::string or_unknown(std::string_view text) {
  return text.empty() ? "unknown" : std::string(text);
}

json or_null(const std::optional<uint64_t>& number) {
  return number ? json(*number) : json(nullptr);
}

}  // namespace

CpuInfo parse_cpuinfo(std::string_view text) {
  CpuInfo info;
  std::string_view model;
  for (const std::string_view key : {"model name", "Model", "Hardware", "CPU implementer"}) {
    if (model.empty()) model = value_of(text, key, ':');
  }
  info.model = or_unknown(model);
  std::string_view flags = value_of(text, "flags", ':');
  if (flags.empty()) flags = value_of(text, "Features", ':');
  std::istringstream words{std::string(flags)};
  for (std::string word; words >> word;) {
    if (std::find(kInstructionSets.begin(), kInstructionSets.end(), word) !=
        kInstructionSets.end()) {
      info.instruction_sets.push_back(word);
    }
  }
  return info;
}

json describe_hardware() {
  utsname system{};
  ::uname(&system);
  const CpuInfo cpu = parse_cpuinfo(read_system_text("/proc/cpuinfo"));
  const std::string meminfo = read_system_text("/proc/meminfo");
  auto total = memory_of(meminfo, "MemTotal");
  auto available = memory_of(meminfo, "MemAvailable");
  if (const auto limit = cgroup_memory_limit()) {
    total = std::min(total.value_or(*limit), *limit);
    available = std::min(available.value_or(*limit), *limit);
  }
  return {
      {"hostname", or_unknown(system.nodename)},
      {"os", or_unknown(value_of(read_system_text("/etc/os-release"), "PRETTY_NAME", '='))},
      {"kernel", std::string(system.sysname) + " " + system.release},
      {"architecture", or_unknown(system.machine)},
      {"cpu", cpu.model},
      {"cores", num_cores()},
      {"cores_total", std::max(1U, std::thread::hardware_concurrency())},
      {"instruction_sets", cpu.instruction_sets},
      {"memory_bytes", or_null(total)},
      {"memory_available_bytes", or_null(available)},
  };
}

}  // namespace ballast::record
