// SPDX-License-Identifier: Apache-2.0
#include "ballast/comm/processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <system_error>

#include "ballast/system/number_from.h"

namespace ballast::comm {
namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  // A process that ends between opening and reading is an error of reading; this way none throws.
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Process> all_processes() {
  std::vector<Process> all;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; entry != end; entry.increment(error)) {
    if (error) break;
    const auto id = number_from<int>(entry->path().filename().native());
    if (const auto found = id ? process(*id) : std::nullopt) all.push_back(*found);
  }
  return all;
}

}  // namespace

std::optional<Process> process(pid_t id) {
  // "12 (a name) S 1 ...": a name may hold anything.
  const std::string text = read_all(fmt::format("/proc/{}/stat", id));
  const size_t open = text.find('('), close = text.rfind(") ");
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  Process found{id, 0, text[close + 2], text.substr(open + 1, close - open - 1)};
  const size_t parent = close + 4;
  found.parent =
      number_from<int>(std::string_view(text).substr(parent, text.find(' ', parent) - parent))
          .value_or(0);
  return found;
}

std::vector<Process> children_of(pid_t parent) {
  std::vector<Process> all = all_processes();
  std::erase_if(all, [&](const Process& one) { return one.parent != parent; });
  return all;
}

std::vector<Process> descendants_of(pid_t ancestor) {
  const std::vector<Process> all = all_processes();
  std::vector<Process> found;
  std::vector<pid_t> parents{ancestor};
  for (size_t i = 0; i < parents.size(); ++i) {
    for (const Process& one : all) {
      if (one.parent != parents[i]) continue;
      found.push_back(one);
      parents.push_back(one.id);
    }
  }
  return found;
}

bool is_mpirun(const Process& process) {
  constexpr std::string_view kNames[] = {"mpirun", "mpiexec", "orterun",
                                         "orted",  "prterun", "prted"};
  return std::ranges::find(kNames, process.name) != std::end(kNames);
}

bool starts_workers(const Process& process) {
  return is_mpirun(process) || process.name == "slurmstepd";
}

std::vector<std::string> command_line_of(pid_t id) {
  std::istringstream text(read_all(fmt::format("/proc/{}/cmdline", id)));
  std::vector<std::string> words;
  for (std::string word; std::getline(text, word, '\0');) words.push_back(word);
  return words;
}

std::optional<int> worker_number(pid_t id) {
  const std::string variables = read_all(fmt::format("/proc/{}/environ", id));
  for (const std::string_view name : {"OMPI_COMM_WORLD_RANK=", "PMI_RANK=", "SLURM_PROCID="}) {
    for (size_t at = 0; at < variables.size(); at = variables.find('\0', at) + 1) {
      const std::string_view variable(variables.c_str() + at);
      if (variable.starts_with(name)) return number_from<int>(variable.substr(name.size()));
    }
  }
  return std::nullopt;
}

int own_worker_number() { return worker_number(::getpid()).value_or(0); }

std::string stopped_workers(pid_t starter) {
  const auto parent = process(starter);
  if (!parent || !starts_workers(*parent)) return "";
  std::string lines;
  if (parent->stopped())
    lines += fmt::format("\n  {} is stopped (process {})", parent->name, starter);
  for (const Process& child : children_of(starter)) {
    if (!child.stopped()) continue;
    const auto number = worker_number(child.id);
    lines += fmt::format(
        "\n  {} is stopped (process {})",
        number ? fmt::format("worker {}", *number) : "a worker that is just being started",
        child.id);
  }
  return lines;
}

}  // namespace ballast::comm
