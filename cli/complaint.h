// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ballast::cli {

// Exit codes, and kWorkersLost of comm/launch.h. docs/workers.md tells which of them
// `--max-restarts` starts again after.
constexpr int kOurFault = 1, kUserMistake = 2;
constexpr int kNobodyReads = 141;  // as a shell reports SIGPIPE

// Prints "ballast: MESSAGE" on stderr, with control characters escaped, and returns `code`.
int complain(const std::string& message, int code);

// Within a catch block: prints what was thrown, after `prefix`, and returns the exit code.
int complain_of_exception(const std::string& prefix = "");

// At a command's end: `code`, unless that is 0 and something of what went to stdout was lost. Then
// it says so, but where the reader of a pipe has gone (`| head -1`), which is its right.
int with_output_written(int code);

}  // namespace ballast::cli
