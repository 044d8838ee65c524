// SPDX-License-Identifier: Apache-2.0
#include "ballast/record/cgroup_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace ballast::record {
namespace {

namespace fs = std::filesystem;

void lower(std::optional<uint64_t>& limit, const fs::path& file) {
  std::ifstream stream(file);
  uint64_t bytes = 0;
  if (stream >> bytes) limit = std::min(limit.value_or(bytes), bytes);  // "max" is no number
}

// The limits of a group and of those it lies in. A container may see its own group as the root, and
// not the folders that lead there.
void lower_on_the_way_up(std::optional<uint64_t>& limit, const fs::path& mount, fs::path group,
                         const char* name) {
  for (group = group.relative_path(); !group.empty(); group = group.parent_path())
    lower(limit, mount / group / name);
  lower(limit, mount / name);
}

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

}  // namespace

std::optional<uint64_t> cgroup_memory_limit(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::optional<uint64_t> limit;
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "5:cpu,memory:/a/b", "0::/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      lower_on_the_way_up(limit, mounts, group, "memory.max");
    } else if (has_word(controllers, "memory")) {
      lower_on_the_way_up(limit, mounts / "memory", group, "memory.limit_in_bytes");
    }
  }
  return limit;
}

}  // namespace ballast::record
