// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ballast::cli {

// Exit codes; comm/launch.h has kWorkersLost. docs/workers.md tells after which of them
// `--max-restarts` starts again.
constexpr int kOurFault = 1, kUserMistake = 2;
constexpr int kNobodyReads = 141;  // as a shell reports SIGPIPE

// Prints "ballast: MESSAGE" on stderr, with control characters escaped, and returns `code`.
int complain(const std::string& message, int code);

// Within a catch block: prints what was thrown, after `prefix`, and returns the exit code.
int complain_of_exception(const std::string& prefix = "");

// At a command's end: `code`, unless that is 0 and output to stdout was lost. Then it says so, and
// returns another code. A reader of a pipe that has gone (`| head -1`) is no error: nothing is
// said.
int with_output_written(int code);

}  // namespace ballast::cli
