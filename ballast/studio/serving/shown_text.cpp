// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/serving/shown_text.h"

#include <algorithm>

namespace ballast::serving {
namespace {

// Bytes at the end of `text` that a stop text may begin with.
size_t begun_length(std::string_view text, const std::string& stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (stop.starts_with(text.substr(text.size() - length))) return length;
  }
  return 0;
}

}  // namespace

std::string ShownText::add(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  size_t end = std::string::npos, begun = 0;
  for (const std::string& stop : stops_) {
    end = std::min(end, held_.find(stop));
    begun = std::max(begun, begun_length(held_, stop));
  }
  if (end == std::string::npos) return release(held_.size() - begun);
  stopped_ = true;
  std::string last = release(end) + characters_.rest();
  held_.clear();
  return last;
}

std::string ShownText::rest() {
  if (stopped_) return {};
  std::string last = release(held_.size());
  return last + characters_.rest();
}

std::string ShownText::release(size_t bytes) {
  released_ += bytes;
  std::string shown = characters_.add(std::string_view(held_).substr(0, bytes));
  held_.erase(0, bytes);
  return shown;
}

}  // namespace ballast::serving
