// SPDX-License-Identifier: Apache-2.0
#include "ballast/config/toml_bounds.h"

#include <algorithm>

#include "ballast/system/error.h"

namespace ballast::config {
namespace {

// The length of the string that `text` begins with, quotes included. One that does not end is an
// error that the parser finds: it goes to the end of its line, or of the text.
size_t string_length(std::string_view text) {
  const char quote = text.front();
  const std::string triple(3, quote);
  const bool is_long = text.starts_with(triple);
  for (size_t i = is_long ? 3 : 1; i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (!is_long && (text[i] == quote || text[i] == '\n')) {
      return text[i] == quote ? i + 1 : i;
    } else if (is_long && text.substr(i).starts_with(triple)) {
      const size_t end = std::min(text.find_first_not_of(quote, i), text.size());
      return std::min(end, i + 5);  // up to two quotes are the string's last characters
    }
  }
  return text.size();
}

}  // namespace

void check_toml_bounds(std::string_view text, const std::string& origin) {
  int line = 1, depth = 0, dots = 0;
  while (!text.empty()) {
    size_t length = 1;
    const char c = text.front();
    if (c == '"' || c == '\'') {
      length = string_length(text);
      line += static_cast<int>(std::ranges::count(text.substr(0, length), '\n'));
    } else if (c == '#') {
      length = std::min(text.find('\n'), text.size());
    } else if (c == '.') {
      ++dots;
    } else if (c == '[' || c == '{') {
      ++depth;
      dots = 0;
    } else if (c == ']' || c == '}') {
      depth = std::max(depth - 1, 0);
      dots = 0;
    } else if (c == '\n' || c == ',' || c == '=') {
      line += c == '\n';
      dots = 0;
    }
    if (depth > kMaxTomlDepth || dots > kMaxTomlDepth)
      fail("{}, line {}: it nests deeper than {} levels", origin, line, kMaxTomlDepth);
    text.remove_prefix(length);
  }
}

}  // namespace ballast::config
