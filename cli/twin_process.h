// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "cli/child_process.h"

namespace CLI {
class App;
}

namespace ballast::cli {

// A plain PyTorch program of benchmarks/twin that measures the same as we do, in turns with us.
struct TwinOptions {
  std::string python, mode = "eager";  // eager or compile
  bool no_twin = false;
};

// --python, --mode, --no-twin.
void add_twin_options(CLI::App& command, TwinOptions& options);

struct Twin {
  std::unique_ptr<ChildProcess> process;  // null: there is none
  std::string version = {};               // of PyTorch
};
// Starts benchmarks/twin/SCRIPT with one JSON object as its argument, and waits until it is ready.
// Without a Python that has torch there is no twin, with a warning; if one was named, a UserError.
Twin start_twin(const TwinOptions& options, const std::string& script,
                const std::string& arguments);

}  // namespace ballast::cli
