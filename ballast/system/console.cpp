// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>

#include "ballast/system/console_frame.h"
#include "ballast/system/file.h"
#include "ballast/system/time_stamp.h"
#include "ballast/system/utf8.h"

namespace ballast {
namespace {

constexpr std::string_view kVariable = "BALLAST_CONSOLE", kLive = "live", kPlain = "plain";
constexpr std::string_view kClear = "\r\x1b[K";

// A signal handler can reach nothing but globals.
std::atomic<int> g_log = -1;
static_assert(std::atomic<int>::is_always_lock_free);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const std::string told = variable("COLUMNS");
  size_t columns = 0;
  std::from_chars(told.data(), told.data() + told.size(), columns);
  return columns > 0 ? columns : 80;
}

// False: some of it is lost.
bool write_all(int descriptor, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// A stderr that takes nothing changes nothing. One write: other processes write there, too.
void write_stderr(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

// Each line with the time before it.
std::string stamped(std::string_view text) {
  const TimeStamp now;
  std::string lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines += fmt::format("{} {}\n", now.text(), text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

class Console {
 public:
  Console() {
    const std::string told = variable(std::string(kVariable).c_str());
    is_relayed_ = told == kLive || told == kPlain;
    const bool terminal = ::isatty(STDERR_FILENO) != 0 && variable("TERM") != "dumb";
    is_live_ = is_relayed_ ? told == kLive : terminal;
    is_coloured_ = !is_relayed_ && terminal && variable("NO_COLOR").empty();
  }

  void set(const ConsoleOptions& options) {
    const std::lock_guard lock(mutex_);
    quiet_ = options.quiet;
    if (options.log.empty()) return;
    const int file =
        ::open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
    if (file < 0) fail_with_errno("write the log", options.log);
    g_log = file;
  }

  bool shows_bars() const { return is_live_ && !quiet_; }

  void put(Weight weight, std::string_view prefix, const std::vector<LinePart>& parts) {
    const std::lock_guard lock(mutex_);
    if (is_relayed_) return write_stderr(frame_of_line(weight, parts));
    add_to_log(fmt::format("{}{}", prefix, fit_line(parts, kAnyColumns)));
    if ((quiet_ && weight < Weight::kWarning) || (weight == Weight::kProgress && is_live_)) return;
    size_t columns = kAnyColumns;
    if (is_live_ && parts.size() > 1)
      columns = std::max(terminal_columns(), columns_of(prefix)) - columns_of(prefix);
    const std::string line = coloured(weight, fit_line(parts, columns));
    write_stderr(fmt::format("{}{}{}\n{}", bar_.empty() ? "" : kClear, prefix, line, bar_));
  }

  void show(const Bar& bar) {
    const std::lock_guard lock(mutex_);
    if (is_relayed_) return write_stderr(frame_of_bar(bar));
    if (!shows_bars()) return;
    constexpr BarColour kColour{"\x1b[36m", "\x1b[0m"};
    // A terminal may go to the next line after the last column.
    bar_ = fit_bar(bar, terminal_columns() - 1, is_coloured_ ? kColour : BarColour());
    write_stderr(fmt::format("{}{}", kClear, bar_));
  }

  void clear() {
    const std::lock_guard lock(mutex_);
    if (is_relayed_ && is_live_) return write_stderr(frame_of_clearing());
    if (bar_.empty()) return;
    bar_.clear();
    write_stderr(std::string(kClear));
  }

 private:
  std::string coloured(Weight weight, const std::string& line) const {
    const std::string_view word = weight == Weight::kError     ? "ballast:"
                                  : weight == Weight::kWarning ? "warning:"
                                                               : "";
    if (!is_coloured_ || word.empty() || !line.starts_with(word)) return line;
    return fmt::format("\x1b[{}m{}\x1b[0m{}", weight == Weight::kError ? "1;31" : "33", word,
                       line.substr(word.size()));
  }

  void add_to_log(std::string_view text) {
    const int file = g_log;
    if (file < 0 || write_all(file, stamped(text))) return;
    g_log = -1;
    write_stderr(
        fmt::format("warning: the log cannot be written any more: {}\n", std::strerror(errno)));
  }

  std::mutex mutex_;
  bool is_relayed_ = false;  // another process reads our stderr by relay_line()
  bool is_live_ = false, is_coloured_ = false, quiet_ = false;
  std::string bar_;  // on the screen
};

Console& console() {
  static Console& console = *new Console;  // threads may write until the very end
  return console;
}

}  // namespace

void set_console(const ConsoleOptions& options) { console().set(options); }

void put_line(Weight weight, const std::vector<LinePart>& parts) {
  console().put(weight, "", parts);
}

bool shows_bars() { return console().shows_bars(); }
void show_bar(const Bar& bar) { console().show(bar); }
void clear_bar() { console().clear(); }

std::string console_variable() {
  return fmt::format("{}={}", kVariable, shows_bars() ? kLive : kPlain);
}

void relay_line(std::string_view line) {
  const std::optional<Frame> frame = read_frame(line);
  // What nobody marked is not ours: a library's warning, mpirun's own words.
  if (!frame) return console().put(Weight::kWarning, "", {{printable(line)}});
  switch (frame->kind) {
    case Frame::Kind::kLine:
      return console().put(frame->weight, frame->prefix, frame->parts);
    case Frame::Kind::kBar:
      return console().show(frame->bar);
    case Frame::Kind::kClearing:
      return console().clear();
  }
}

bool is_for_relay(std::string_view line) { return read_frame(line).has_value(); }

void write_in_signal(std::initializer_list<std::string_view> pieces) noexcept {
  const int file = g_log;
  const TimeStamp now;
  if (file >= 0) {
    write_all(file, now.text());
    write_all(file, " ");
  }
  for (const std::string_view piece : pieces) {
    write_all(STDERR_FILENO, piece);
    if (file >= 0) write_all(file, piece);
  }
}

}  // namespace ballast
