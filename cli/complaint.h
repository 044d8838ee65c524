// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ballast::cli {

// Exit codes, and kWorkersLost of comm/launch.h. docs/workers.md tells which of them
// `--max-restarts` starts again after.
constexpr int kOurFault = 1, kUserMistake = 2;

// Prints "ballast: MESSAGE" on stderr and returns `code`.
int complain(const std::string& message, int code);

// Within a catch block: prints what was thrown, after `prefix`, and returns the exit code.
int complain_of_exception(const std::string& prefix = "");

}  // namespace ballast::cli
