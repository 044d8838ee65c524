// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/child_process.h"

namespace CLI {
class App;
}

namespace ballast::cli {

// A plain PyTorch program of benchmarks/twin that measures the same as we do, in turns with us.
struct TwinOptions {
  std::string python, named_mode;  // empty: not named
  bool no_twin = false;

  std::string mode() const { return named_mode.empty() ? "eager" : named_mode; }
  bool is_asked_for() const { return !python.empty() || !named_mode.empty(); }
};

// --python, --mode, --no-twin.
void add_twin_options(CLI::App& command, TwinOptions& options);

struct Twin {
  std::unique_ptr<ChildProcess> process;  // null: there is none
  std::string version = {};               // of PyTorch
  int64_t parameters = 0;                 // of its model; 0: it does not say
};
// Starts benchmarks/twin/SCRIPT with one JSON object as its argument, and waits until it is ready.
// Without the script or a Python that has torch there is no twin, with a warning; a UserError if
// one was asked for by a Python or a mode.
Twin start_twin(const TwinOptions& options, const std::string& script,
                const std::string& arguments);

}  // namespace ballast::cli
