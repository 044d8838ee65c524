// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ballast/system/stop_signal.h"

namespace ballast::cli {

// This program once more, with other arguments. What it prints is added to the file `log`.
struct ChildCommand {
  std::vector<std::string> arguments;
  std::filesystem::path log;
};

struct ChildWatch {
  int64_t at_once = 1;
  std::function<void(size_t)> started;              // by the command's number
  std::function<void(size_t, int code)> has_ended;  // 128 + the signal where one ended it
};

// Runs all, some at once, in their order, and returns when they have ended. Once a stop is
// requested, those that run are asked to stop as well, and no other is started. They end with this
// process, whatever ends it.
void run_children(const std::vector<ChildCommand>& commands, const ChildWatch& watch,
                  const StopSignal& stop);

// The last lines of what a child printed.
std::string last_lines(const std::filesystem::path& log, size_t count);

}  // namespace ballast::cli
