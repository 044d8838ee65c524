// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "ballast/system/file.h"

namespace ballast::test {

inline constexpr const char* kRunFile = R"({"format": "ballast-run", "version": 1, "starts": [
  {"step": 0, "time": "2026-01-01T00:00:00Z", "program_version": "0.1.0",
   "command_line": ["ballast", "train"], "hardware": {"cpu": "a processor", "cores": 2}}]})";

// Writes run.json and a config into `folder`.
inline void write_run(const fs::path& folder, const std::string& config) {
  make_folder(folder);
  write_text_atomically(folder / "run.json", kRunFile);
  write_text_atomically(folder / "config.toml", config);
}

inline std::string step_line(int step, double loss) {
  return fmt::format(
      R"({{"step": {}, "loss": {}, "tokens": {}, "seconds": {}, "tokens_per_second": 100}})"
      "\n",
      step, loss, 100 * step, step);
}

inline std::string validation_line(int step, double loss) {
  return fmt::format(R"({{"step": {}, "valid_loss": {}, "valid_tokens": 50}})"
                     "\n",
                     step, loss);
}

}  // namespace ballast::test
