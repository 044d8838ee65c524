// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <mutex>

#include "ballast/system/log.h"
#include "ballast/system/utf8.h"

namespace ballast {

using Clock = std::chrono::steady_clock;

struct Progress::State {
  std::string title, unit, note;
  uint64_t total = 0, done = 0;
  Clock::time_point start = Clock::now(), last_draw{};
  bool terminal = false, silent = false;
};

namespace {

// One lock for everything that writes to stderr, so that lines and bars do not cut into each other.
std::mutex& terminal_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string& bar_on_screen() {
  static std::string bar;
  return bar;
}

void write_stderr(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

std::string scaled(double value, double step, const std::array<const char*, 5>& suffixes) {
  size_t i = 0;
  while (std::abs(value) >= step && i + 1 < suffixes.size()) {
    value /= step;
    ++i;
  }
  if (i == 0) return fmt::format("{:.0f}{}", value, suffixes[0]);
  return fmt::format("{:.{}f}{}", value, value < 10 ? 2 : value < 100 ? 1 : 0, suffixes[i]);
}

}  // namespace

void log_line(std::string_view line) {
  const std::lock_guard lock(terminal_mutex());
  const std::string& bar = bar_on_screen();
  if (!bar.empty()) write_stderr("\r\x1b[K");
  write_stderr(printable(line) + "\n");
  if (!bar.empty()) write_stderr(bar);
  std::fflush(stderr);
}

Progress::Progress(std::string title, uint64_t total, std::string unit, OffTerminal off_terminal)
    : state_(new State) {
  state_->title = std::move(title);
  state_->unit = std::move(unit);
  state_->total = total;
  state_->terminal = isatty(STDERR_FILENO) != 0;
  state_->silent = !state_->terminal && off_terminal == OffTerminal::kSilent;
  if (!state_->terminal) state_->last_draw = Clock::now();
}

Progress::~Progress() {
  {
    const std::lock_guard lock(terminal_mutex());
    if (state_->terminal && !bar_on_screen().empty()) {
      write_stderr("\r\x1b[K");
      std::fflush(stderr);
      bar_on_screen().clear();
    }
  }
  delete state_;
}

namespace {

std::string amount(double value, const std::string& unit) {
  return unit == "bytes" ? format_bytes(value) : format_count(value) + " " + unit;
}

}  // namespace

void Progress::advance(uint64_t step) {
  const std::lock_guard lock(terminal_mutex());
  State& s = *state_;
  s.done += step;
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - s.last_draw).count();
  if (s.silent || since < (s.terminal ? 0.1 : 10.0)) return;
  s.last_draw = now;
  const double seconds = std::chrono::duration<double>(now - s.start).count();
  const double share = s.total ? std::min(1.0, double(s.done) / double(s.total)) : 0;
  std::string line = s.title + " ";
  if (s.total) {
    const int width = 24, filled = int(share * width);
    if (s.terminal) line += fmt::format("[{:=>{}}{:>{}}] ", "", filled, "", width - filled);
    line += fmt::format("{:3.0f}% ", 100 * share);
  }
  if (s.note.empty()) {
    line += fmt::format("{} {}/s", amount(double(s.done), s.unit),
                        amount(double(s.done) / std::max(seconds, 1e-9), s.unit));
  } else {
    line += s.note;
  }
  if (s.total && share > 0) {
    line += fmt::format(" eta {}", format_duration(seconds * (1 - share) / share));
  }
  if (s.terminal) {
    line.resize(std::min(line.size(), terminal_columns() - 1));
    bar_on_screen() = line;
    write_stderr("\r\x1b[K" + line);
  } else {
    write_stderr(line + "\n");
  }
  std::fflush(stderr);
}

void Progress::note(std::string text) {
  const std::lock_guard lock(terminal_mutex());
  state_->note = std::move(text);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 60) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole % 3600 / 60);
}

std::string format_count(double count) { return scaled(count, 1000, {"", "k", "M", "B", "T"}); }

std::string format_bytes(double bytes) {
  return scaled(bytes, 1000, {" B", " kB", " MB", " GB", " TB"});
}

}  // namespace ballast
