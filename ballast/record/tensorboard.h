// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "ballast/record/append_file.h"

namespace ballast::record {

struct Scalar {
  std::string tag;   // "train/loss"
  double value = 0;  // stored as float
};

// Writes a TensorBoard event file. Events are in the file when a call returns. Each start of a run
// has a file of its own, named so that it sorts after those before it.
class TensorboardWriter {
 public:
  // For a run that goes on with `first_step` (0: from its start): TensorBoard forgets what earlier
  // files in `folder` say of that and later steps. Creates the folder where missing.
  TensorboardWriter(const fs::path& folder, uint64_t first_step);

  void scalars(uint64_t step, std::span<const Scalar> values);
  void text(uint64_t step, std::string_view tag, std::string_view text);  // shown as Markdown
  const fs::path& path() const { return path_; }
  void sync() { file_.sync(); }

 private:
  void write_event(std::string_view event);

  fs::path path_;
  AppendFile file_;
};

}  // namespace ballast::record
