// SPDX-License-Identifier: Apache-2.0
#include "ballast/system/console_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "ballast/system/number_from.h"

namespace ballast {
namespace {

constexpr char kStart = '\x1e', kBeforePart = '\x1f', kLineEnd = '\x1d';
constexpr std::string_view kWeights = "piwe";  // by Weight
constexpr char kBar = 'b', kClearing = 'c';

// Importance and text of a part; line ends within it must not end the frame.
std::string part_text(const LinePart& part) {
  std::string text = part.text;
  std::ranges::replace(text, '\n', kLineEnd);
  return fmt::format("{}{} {}", kBeforePart, part.importance, text);
}

std::string frame(char kind, const std::vector<LinePart>& parts) {
  std::string line = {kStart, kind};
  for (const LinePart& part : parts) line += part_text(part);
  return line + "\n";
}

std::optional<LinePart> read_part(std::string_view text) {
  LinePart part;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), part.importance);
  if (error != std::errc() || end == text.data() + text.size() || *end != ' ') return std::nullopt;
  part.text = std::string(end + 1, text.data() + text.size());
  std::ranges::replace(part.text, kLineEnd, '\n');
  return part;
}

std::optional<std::vector<LinePart>> read_parts(std::string_view text) {
  std::vector<LinePart> parts;
  while (!text.empty()) {
    if (text.front() != kBeforePart) return std::nullopt;
    text.remove_prefix(1);
    const size_t end = std::min(text.find(kBeforePart), text.size());
    const std::optional<LinePart> part = read_part(text.substr(0, end));
    if (!part) return std::nullopt;
    parts.push_back(*part);
    text.remove_prefix(end);
  }
  return parts;
}

// A bar is a line whose first parts are its title and its share.
std::optional<Bar> bar_of(const std::vector<LinePart>& parts) {
  if (parts.size() < 2) return std::nullopt;
  Bar bar{parts[0].text};
  const std::string& share = parts[1].text;
  if (!share.empty()) {
    const auto value = number_from<double>(share);
    if (!value) return std::nullopt;
    bar.share = *value;
  }
  bar.parts.assign(parts.begin() + 2, parts.end());
  return bar;
}

}  // namespace

std::string frame_of_line(Weight weight, const std::vector<LinePart>& parts) {
  return frame(kWeights.at(static_cast<size_t>(weight)), parts);
}

std::string frame_of_bar(const Bar& bar) {
  std::vector<LinePart> parts = {{bar.title}, {bar.share ? fmt::format("{}", *bar.share) : ""}};
  parts.insert(parts.end(), bar.parts.begin(), bar.parts.end());
  return frame(kBar, parts);
}

std::string frame_of_clearing() { return frame(kClearing, {}); }

std::optional<Frame> read_frame(std::string_view line) {
  const size_t start = line.find(kStart);
  if (start == std::string_view::npos || start + 1 >= line.size()) return std::nullopt;
  const char kind = line[start + 1];
  const auto parts = read_parts(line.substr(start + 2));
  if (!parts) return std::nullopt;
  Frame read;
  read.prefix = line.substr(0, start);
  if (const size_t weight = kWeights.find(kind); weight != std::string_view::npos) {
    if (parts->empty()) return std::nullopt;
    read.weight = static_cast<Weight>(weight);
    read.parts = *parts;
    return read;
  }
  if (kind == kClearing) {
    read.kind = Frame::Kind::kClearing;
    return read;
  }
  if (kind != kBar) return std::nullopt;
  const std::optional<Bar> bar = bar_of(*parts);
  if (!bar) return std::nullopt;
  read.kind = Frame::Kind::kBar;
  read.bar = *bar;
  return read;
}

}  // namespace ballast
