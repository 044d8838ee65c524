// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ballast/system/line_layout.h"

namespace ballast {

// What a progress bar does where stderr is no terminal.
enum class OffTerminal { kLines, kSilent };

// A progress bar on stderr: redrawn in place on a terminal, and elsewhere, as in the file of --log,
// one plain line every ten seconds (or nothing), so that logs stay readable. Thread-safe: advance()
// may be called by several workers.
class Progress {
 public:
  // `unit` is what total counts ("bytes" are shown as MB). total 0: unknown, no percentage.
  Progress(std::string title, uint64_t total, std::string unit,
           OffTerminal off_terminal = OffTerminal::kLines);
  ~Progress();  // clears the bar
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(uint64_t amount);
  // Replaces the text between the bar and the time that is left, which has the importance 2.
  void note(std::vector<LinePart> parts);

 private:
  Bar bar() const;

  struct State;
  State* state_;
};

// Seconds as "4.2s", "3m05s", "2h07m".
std::string format_duration(double seconds);
// A count as "812", "12.3k", "4.56M", "1.32B".
std::string format_count(double count);
// Bytes as "512 B", "1.5 MB" (powers of ten), "2.0 GB".
std::string format_bytes(double bytes);

}  // namespace ballast
