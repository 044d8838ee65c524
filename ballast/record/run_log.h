// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/record/append_file.h"

namespace ballast::record {

// Both logs are opened for a run that goes on with `first_step` (0: from its start). What they hold
// of that step and later ones, and what a crash has torn, is removed first, atomically: a run that
// was stopped and resumed has each step once. Before a checkpoint is committed, sync() them.

// metrics.jsonl: one JSON object a line, each with an integer `step`. Numbers that are not finite
// are written as null. A line is in the file when append() returns.
class MetricsLog {
 public:
  MetricsLog(const fs::path& path, uint64_t first_step);

  void append(const nlohmann::json& record);  // REQUIRES: an object with an integer "step" >= 0
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

// samples.txt: for people. A line "== step 500 ==", the text with each line indented by two
// spaces, an empty line.

struct Sample {
  uint64_t step = 0;
  std::string text = {};
};
// Those of a file's text, or of its end: what stands before the first heading is passed over, and
// so is a last line without an end.
std::vector<Sample> read_samples(std::string_view text);

class SampleLog {
 public:
  SampleLog(const fs::path& path, uint64_t first_step);

  void append(uint64_t step, std::string_view text);
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

}  // namespace ballast::record
