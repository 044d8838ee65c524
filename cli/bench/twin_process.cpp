// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/twin_process.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/system/json.h"
#include "ballast/system/log.h"
#include "cli/command.h"

namespace ballast::cli {
namespace {

// The repository's or the installed benchmarks/twin, seen from the program.
fs::path find_twin_folder(const std::string& script) {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  std::vector<std::string> looked_at;
  for (const fs::path& up : {program / ".." / "..", program / ".." / "share" / "ballast"}) {
    const fs::path folder = (up / "benchmarks" / "twin").lexically_normal();
    if (fs::exists(folder / script)) return fs::canonical(folder);
    looked_at.push_back((folder / script).string());
  }
  fail("there is neither {}", fmt::join(looked_at, " nor "));
}

std::string find_python(const TwinOptions& options, const fs::path& twin) {
  if (!options.python.empty()) {
    return options.python.find('/') == std::string::npos ? options.python
                                                         : fs::absolute(options.python).string();
  }
  const fs::path own = twin / ".." / ".." / ".deps" / "twin" / "bin" / "python";
  return fs::exists(own) ? fs::absolute(own).lexically_normal().string() : "python3";
}

}  // namespace

void add_twin_options(CLI::App& command, TwinOptions& options) {
  add_path(command, "--python", options.python, "PATH", "a Python with torch");
  command.add_option("--mode", options.named_mode, "how the twin runs")
      ->check(CLI::IsMember({"eager", "compile"}))
      ->default_str("eager")
      ->type_name("NAME");
  command.add_flag("--no-twin", options.no_twin, "measure ours alone");
}

Twin start_twin(const TwinOptions& options, const std::string& script,
                const std::string& arguments) {
  if (options.no_twin) return {};
  try {
    const fs::path folder = find_twin_folder(script);
    Twin twin{.process = std::make_unique<ChildProcess>(
                  std::vector<std::string>{find_python(options, folder), script, arguments},
                  folder.string())};
    const std::string line = twin.process->read_line();
    const auto said = parse_json_or_discard(line);
    constexpr size_t kShown = 120;  // of what may be anything
    if (!said.is_object() || !said.contains("ready")) {
      fail("{} said \"{}{}\" instead of being ready", script, line.substr(0, kShown),
           line.size() > kShown ? "..." : "");
    }
    twin.version = said.at("ready");
    twin.parameters = said.value("parameters", int64_t{0});
    return twin;
  } catch (const UserError& error) {
    if (options.is_asked_for())
      fail("{} (`make twin` installs a Python with torch, --python names another)", error.what());
    log_warning("no PyTorch to compare with: {} (`make twin` installs one)", error.what());
    return {};
  }
}

}  // namespace ballast::cli
