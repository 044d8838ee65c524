// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <utility>

#include "ballast/system/console.h"
#include "ballast/system/utf8.h"

namespace ballast {

using Clock = std::chrono::steady_clock;

struct Progress::State {
  std::mutex mutex;
  std::string title, unit;
  std::vector<LinePart> note;
  uint64_t total = 0, done = 0;
  Clock::time_point start = Clock::now(), last_draw{}, last_line = Clock::now();
  OffTerminal off_terminal = OffTerminal::kLines;
};

namespace {

constexpr std::chrono::milliseconds kBetweenDraws{100};
constexpr std::chrono::seconds kBetweenLines{10};
constexpr int kEtaImportance = 2;  // of a note's parts some are above, some below

std::string scaled(double value, double step, const std::array<const char*, 5>& suffixes) {
  size_t i = 0;
  while (std::abs(value) >= step && i + 1 < suffixes.size()) {
    value /= step;
    ++i;
  }
  if (i == 0) return fmt::format("{:.0f}{}", value, suffixes[0]);
  return fmt::format("{:.{}f}{}", value, value < 10 ? 2 : value < 100 ? 1 : 0, suffixes[i]);
}

std::string amount(double value, const std::string& unit) {
  return unit == "bytes" ? format_bytes(value) : format_count(value) + " " + unit;
}

}  // namespace

Progress::Progress(std::string title, uint64_t total, std::string unit, OffTerminal off_terminal)
    : state_(new State) {
  state_->title = printable(title);
  state_->unit = std::move(unit);
  state_->total = total;
  state_->off_terminal = off_terminal;
}

Progress::~Progress() {
  clear_bar();
  delete state_;
}

Bar Progress::bar() const {
  const State& s = *state_;
  const double seconds = std::chrono::duration<double>(Clock::now() - s.start).count();
  Bar bar{s.title, {}, s.note};
  if (s.total > 0) bar.share = std::min(1.0, double(s.done) / double(s.total));
  if (bar.parts.empty()) {
    bar.parts = {{amount(double(s.done), s.unit), 1},
                 {amount(double(s.done) / std::max(seconds, 1e-9), s.unit) + "/s", 0}};
  }
  if (const double share = bar.share.value_or(0); share > 0)
    bar.parts.push_back(
        {fmt::format("eta {}", format_duration(seconds * (1 - share) / share)), kEtaImportance});
  return bar;
}

void Progress::advance(uint64_t step) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.done += step;
  const Clock::time_point now = Clock::now();
  if (shows_bars() && now - s.last_draw >= kBetweenDraws) {
    s.last_draw = now;
    show_bar(bar());
  }
  if (s.off_terminal == OffTerminal::kLines && now - s.last_line >= kBetweenLines) {
    s.last_line = now;
    put_line(Weight::kProgress, {{line_of(bar())}});
  }
}

void Progress::note(std::vector<LinePart> parts) {
  for (LinePart& part : parts) part.text = printable(part.text);
  const std::lock_guard lock(state_->mutex);
  state_->note = std::move(parts);
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
