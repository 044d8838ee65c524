// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/line_layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace ballast {
namespace {

constexpr std::string_view kBetween = " | ";

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

std::string cut(std::string text, size_t columns) {
  size_t seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (starts_character(text[i]) && seen++ == columns) {
      text.resize(i);
      break;
    }
  }
  return text;
}

std::string joined(const std::vector<LinePart>& parts) {
  std::string line;
  for (const LinePart& part : parts) {
    if (!line.empty()) line += kBetween;
    line += part.text;
  }
  return line;
}

std::string percentage(const Bar& bar) {
  return bar.share ? fmt::format(" {:3.0f}%", 100 * std::clamp(*bar.share, 0.0, 1.0)) : "";
}

// The title and the percentage, as the part that goes last.
std::vector<LinePart> with_head(std::string head, const Bar& bar) {
  std::vector<LinePart> parts = bar.parts;
  int highest = 0;
  for (const LinePart& part : parts) highest = std::max(highest, part.importance);
  parts.insert(parts.begin(), {std::move(head), highest + 1});
  return parts;
}

}  // namespace

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, starts_character));
}

std::string fit_line(const std::vector<LinePart>& parts, size_t columns) {
  std::vector<LinePart> kept = parts;
  while (kept.size() > 1 && columns_of(joined(kept)) > columns) {
    // From the end: of equals the last goes.
    const auto least =
        std::min_element(kept.rbegin(), kept.rend(),
                         [](const auto& a, const auto& b) { return a.importance < b.importance; });
    kept.erase(std::next(least).base());
  }
  return cut(joined(kept), columns);
}

std::string fit_bar(const Bar& bar, size_t columns, BarColour colour) {
  constexpr size_t kLengths[] = {24, 16, 8};
  constexpr size_t kFrame = 3;  // the brackets, and the space before them
  const std::string percent = percentage(bar);
  if (!bar.share) return fit_line(with_head(bar.title, bar), columns);
  const auto rest = with_head(bar.title + percent, bar);
  const size_t whole = columns_of(joined(rest));
  for (const size_t length : kLengths) {
    // The shortest one is worth more than the parts beside it.
    const bool is_last = length == *std::rbegin(kLengths);
    const size_t least = columns_of(bar.title + percent) + kFrame + length;
    if (is_last ? least > columns : whole + kFrame + length > columns) continue;
    const auto filled = static_cast<size_t>(std::clamp(*bar.share, 0.0, 1.0) * double(length));
    const std::string line = fit_line(rest, columns - kFrame - length);
    return fmt::format("{} [{}{:=>{}}{}{:{}}]{}", bar.title, colour.on, "", filled, colour.off, "",
                       length - filled, line.substr(bar.title.size()));
  }
  return fit_line(rest, columns);
}

std::string line_of(const Bar& bar) {
  return fit_line(with_head(bar.title + percentage(bar), bar), kAnyColumns);
}

}  // namespace ballast
