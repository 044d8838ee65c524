// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace ballast::cli {

// A program we talk to line by line; its stderr is ours. Ended with this object.
class ChildProcess {
 public:
  // `folder`: where it runs. Throws UserError if it cannot be started.
  ChildProcess(const std::vector<std::string>& command, const std::string& folder);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void write_line(const std::string& line);
  // The next line without its end; throws UserError if the program ended instead.
  std::string read_line();

 private:
  std::string name_;
  pid_t pid_ = -1;
  std::FILE *to_ = nullptr, *from_ = nullptr;
};

}  // namespace ballast::cli
