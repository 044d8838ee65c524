// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/system/line_layout.h"

namespace ballast {

// Where all goes that people read while the program works: to stderr, and to the file of --log.
// log.h and progress.h are how to write there. Thread-safe.
//
// On a terminal lines of several parts fit its width, which is asked for each time; a live bar
// stands below the lines; "warning:" and "ballast:" have colours, unless NO_COLOR is set. With
// TERM=dumb a terminal is treated as a file. Nowhere else are there bars or colours.

struct ConsoleOptions {
  bool quiet = false;              // stderr gets warnings and errors alone; the file still gets all
  std::filesystem::path log = {};  // each line is added to it, with the time; empty: none
};

// From now on. UserError: the log cannot be written.
void set_console(const ConsoleOptions& options);

enum class Weight {
  kProgress,  // for those who see no live bar
  kInfo,
  kWarning,
  kError,
};

// A line, or several in one part. Control characters must have been escaped (printable()).
void put_line(Weight weight, const std::vector<LinePart>& parts);

// Whether bars are shown: stderr is a terminal, here or where relay_line() is called.
bool shows_bars();
void show_bar(const Bar& bar);
// Takes the bar away, if there is one, so that something else can be printed in its place.
void clear_bar();

// For a process that starts workers and reads their stderr. With this variable ("NAME=VALUE") in
// their environment they write in a form which lets it decide what becomes of each line.
std::string console_variable();
// A line of a worker's stderr, without its end. One that has not the form is shown as it is.
void relay_line(std::string_view line);
// Whether a line has the form, so that no other program wrote it.
bool is_for_relay(std::string_view line);

// Writes a line to stderr and to the log from a signal handler; its end comes with the last piece.
void write_in_signal(std::initializer_list<std::string_view> pieces) noexcept;

}  // namespace ballast
