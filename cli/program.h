// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace ballast::cli {

// What the command line chose; returns the exit code.
using Action = std::function<int()>;

// A program of several commands.
struct Program {
  std::string name;   // as help and messages call it: "ballast"
  std::string about;  // what its help begins with
  std::function<void(CLI::App& app, Action& chosen)> add_commands;
  std::function<bool(std::string_view command)> computes;  // it has OpenMP's threads
};

// All of main(): finds the command, runs it, and says on stderr what went wrong. Returns the exit
// code.
int run_program(const Program& program, int argc, char** argv);

// OpenMP's threads shall sleep soon where they wait for each other, in programs that are started
// from now on. False: the environment says already how they wait.
bool let_waiting_threads_sleep();

}  // namespace ballast::cli
